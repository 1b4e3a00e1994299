#!/bin/bash
# One stage of the tests, by name. `make test` runs them through scripts/stages/CMakeLists.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
unset BINMOE_BACKEND  # the tests choose

build() {  # preset, then options of cmake's configure step
  cmake --preset "$@"
  cmake --build --preset "$1"
}
any_of() {  # a regular expression that names these tests and no other
  local IFS='|'
  echo "^($*)\$"
}
run_tests() {  # preset, then options of ctest
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error "${@:2}"
}

case "${1:-}" in
  format) scripts/check_format.sh ;;
  build) build tests ;;
  python)
    export BINMOE_PROGRAM="$PWD/build/tests/bin/binmoe" BINMOE_LIBRARY="$PWD/build/tests/lib/libbinmoe.so"
    python -m pytest -q "$2"
    ;;
  python_package)  # built into .venv, and only what has changed
    python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
      --config-settings build-dir=build/python --config-settings cmake.define.BINMOE_CUDA=OFF .
    python -m pytest -q tests/python
    ;;
  pip_install)  # as a user does, in a fresh venv; without torch, and on the reference backend, which builds at once
    rm -rf build/fresh
    python -m venv build/fresh
    build/fresh/bin/python -m pip install -q --disable-pip-version-check --no-index --find-links .venv/wheels \
      -C cmake.define.BINMOE_CPU=OFF -C cmake.define.BINMOE_CUDA=OFF .
    cd build/fresh
    bin/python -m binmoe info
    bin/python "$OLDPWD/scripts/stages/installed_package.py"
    ;;
  triton)  # the Triton-Ascend kernels, without an NPU: a process for the interpreter, one for what the compiler makes
    export BINMOE_LIBRARY="$PWD/build/tests/lib/libbinmoe.so" BINMOE_REQUIRE_ASCEND=1 PYTHONPATH="$PWD/python"
    PATH="$PWD/.venv-ascend/bin:$PATH"
    TRITON_INTERPRET=1 python -m pytest -q tests/triton_interpreter
    python -m pytest -q tests/triton
    python -m binmoe.ascend.check
    ;;
  asan)
    build asan -DBINMOE_CLI=OFF  # the fuzzers run its file parser under the same sanitizers
    run_tests asan -LE long
    ;;
  tsan)
    cmake --preset tsan -DBINMOE_CLI=OFF
    # ThreadSanitizer of GCC 12 cannot live with much address randomisation; not every container lets it be turned off.
    fixed=()
    ! setarch -R true 2>/dev/null || fixed=(setarch -R)
    tests=(backend_test environment_test sweep_test vectors_test fault_data_race)  # those that run on several threads
    cmake --build build/tsan --target "${tests[@]}"
    "${fixed[@]}" ctest --test-dir build/tsan --output-on-failure --no-tests=error -R "$(any_of "${tests[@]}")"
    ;;
  fuzz)
    build fuzz
    run_tests fuzz -j2 -L fuzz
    ;;
  no_cpu)
    cmake --preset tests -B build/no_cpu -DBINMOE_CPU=OFF -DBINMOE_CLI=OFF
    tests=(backend_test c_api_test vectors_test)
    cmake --build build/no_cpu --target binmoe_static binmoe_shared "${tests[@]}"
    run_tests no_cpu -R "$(any_of "${tests[@]}")"
    ;;
  installed)  # what no_cpu built, as another project sees it
    rm -rf build/installed build/consumer
    cmake --install build/no_cpu --prefix "$PWD/build/installed"
    cmake -S scripts/stages/consumer -B build/consumer -G Ninja -DCMAKE_PREFIX_PATH="$PWD/build/installed"
    cmake --build build/consumer
    build/consumer/route | grep -x 'token 1: 150 200'
    ;;
  cuda)  # compiled for every architecture; run by scripts/cuda.sh on a machine with a GPU
    cmake --preset cuda -B build/cuda_all -DBINMOE_CPU=OFF -DBINMOE_CLI=OFF
    cmake --build build/cuda_all --target binmoe_shared cuda_test bench_cuda
    run_tests cuda_all -R cuda_test
    ;;
  long)
    build tests
    run_tests tests -L long
    ;;
  aarch64)
    build aarch64
    run_tests aarch64 -j2 -LE long
    ;;
  *)
    echo "usage: scripts/stage.sh format|build|python DIR|python_package|pip_install|triton|asan|tsan|fuzz|no_cpu" \
      "or installed|cuda|long|aarch64" >&2
    exit 2
    ;;
esac
