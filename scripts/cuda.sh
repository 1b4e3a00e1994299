#!/bin/bash
# The cuda backend on a machine with a GPU. Runs the programs of build/cuda/bin if they are there (built elsewhere,
# carried here: they are statically linked), else builds them; parts whose packages are missing are left out, since the
# library needs none of them. Results: ${OUT:-build/cuda-results}.
#   cuda.sh test [device] [suite] [sanitizers] [python]   all four when none is named; a named one must find its tools
#   cuda.sh bench [ARGUMENTS of bench_cuda]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/cuda/bin
results=${OUT:-build/cuda-results}
mkdir -p "$results"

usage() {
  echo "usage: scripts/cuda.sh test [device] [suite] [sanitizers] [python] | bench [ARGUMENTS of bench_cuda]" >&2
  exit 2
}

has_header() { printf '#include <%s>\n' "$1" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

build() {  # targets
  local options=()
  has_header hwy/highway.h || options+=(-DBINMOE_CPU=OFF)
  has_header CLI/CLI.hpp && has_header nlohmann/json.hpp || options+=(-DBINMOE_CLI=OFF)
  [[ -d /usr/src/googletest ]] && has_header nlohmann/json.hpp && has_header rapidcheck.h ||
    options+=(-DBINMOE_TESTS=OFF)
  cmake --preset cuda -DBINMOE_CUDA_ARCHITECTURES=native "${options[@]}"
  cmake --build --preset cuda --target "$@"
}

run() {  # name of the log, command
  printf '== %s\n' "${*:2}"
  "${@:2}" >"$results/$1.log" 2>&1 || { tail -n 40 "$results/$1.log"; failed+=("$1"); return 0; }
  grep -E '^\[  (PASSED|SKIPPED)|ERROR SUMMARY|^[0-9]+ passed' "$results/$1.log" || true
}

test_device() { run cuda_test "$bin/cuda_test"; }  # arrays in device memory

test_suite() {  # every backend's suite, on this one alone; it copies host arrays in and out
  for program in vectors sweep numeric plan check refusal property backend; do
    if [[ -x $bin/${program}_test ]]; then
      run "$program" "$bin/${program}_test"
    else
      not_run+=("${program}_test (not in $bin)")
    fi
  done
}

test_sanitizers() {  # the small cases; initcheck: those that leave unwritten what must not be read
  for tool in memcheck racecheck initcheck synccheck; do
    if ! command -v compute-sanitizer >/dev/null; then
      not_run+=("$tool (compute-sanitizer is not here)")
      continue
    fi
    local suites='Small.*:Unwritten.*'
    [[ $tool != initcheck ]] || suites='Unwritten.*'
    run "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/cuda_test" --gtest_filter="$suites"
  done
}

has_torch() { python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; }

install_python() {  # Highway's headers may have been carried to build/highway
  CMAKE_INCLUDE_PATH="$PWD/build/highway" CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
    python3 -m pip install -q --no-build-isolation --no-deps --no-index --upgrade --target build/python-cuda/site \
    --config-settings build-dir=build/python-cuda/build --config-settings cmake.define.BINMOE_CUDA=ON \
    --config-settings cmake.define.BINMOE_CUDA_ARCHITECTURES=native .
  export PYTHONPATH="$PWD/build/python-cuda/site"
}

test_python() {  # tests that take a device, on this one
  if ! has_torch; then
    not_run+=("python (torch with a GPU is not here)")
    return 0
  fi
  install_python
  python3 -m binmoe info
  run python python3 -m pytest -q tests/python -k cuda
}

test_all() {
  [[ -x $bin/cuda_test ]] || build all
  export BINMOE_REQUIRE_CUDA=1 BINMOE_TEST_BACKEND=cuda
  local failed=() not_run=()
  local named=$#
  ((named)) || set -- device suite sanitizers python
  for part in "$@"; do
    case $part in
      device | suite | sanitizers | python) "test_$part" ;;
      *) usage ;;
    esac
  done
  if ((${#failed[@]})); then
    echo "failed: ${failed[*]}; logs in $results"
    return 1
  fi
  for part in "${not_run[@]}"; do echo "not run: $part"; done
  ((${#not_run[@]} == 0 || named == 0)) || return 1
  echo "all that ran passed; logs in $results"
}

bench_all() {
  [[ -x $bin/bench_cuda ]] || build bench_cuda
  "$bin/bench_cuda" --json "$results/bench_cuda.json" "$@" | tee "$results/bench_cuda.md"
  if has_torch; then
    python3 scripts/bench_cuda_torch.py --json "$results/torch.json" --beside "$results/bench_cuda.json" |
      tee "$results/torch.md"
    install_python
    python3 -m binmoe.bench --device cuda --json "$results/python.json" |
      tee "$results/python.md"
  else
    echo "torch with a GPU is not here: it was not timed"
  fi
}

case "${1:-}" in
  test)
    test_all "${@:2}"
    ;;
  bench) bench_all "${@:2}" ;;
  *) usage ;;
esac
