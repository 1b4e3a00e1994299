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
  asan)
    build asan
    run_tests asan -LE long
    BINMOE_PROGRAM="$PWD/build/asan/bin/binmoe" python -m pytest -q tests/cli
    ;;
  tsan)
    build tsan -DBINMOE_CLI=OFF  # it would not be run
    # ThreadSanitizer of GCC 12 cannot live with much address randomisation; not every container lets it be turned off.
    fixed=()
    ! setarch -R true 2>/dev/null || fixed=(setarch -R)
    "${fixed[@]}" ctest --test-dir build/tsan --output-on-failure --no-tests=error -LE long
    ;;
  fuzz)
    build fuzz
    run_tests fuzz -j2 -L fuzz
    ;;
  no_cpu)
    cmake --preset tests -B build/no_cpu -DBINMOE_CPU=OFF -DBINMOE_CLI=OFF
    cmake --build build/no_cpu
    run_tests no_cpu -LE long
    ;;
  installed)  # what no_cpu built, as another project sees it
    rm -rf build/installed build/consumer
    cmake --install build/no_cpu --prefix "$PWD/build/installed"
    cmake -S scripts/stages/consumer -B build/consumer -G Ninja -DCMAKE_PREFIX_PATH="$PWD/build/installed"
    cmake --build build/consumer
    build/consumer/route | grep -x 'token 1: 150 200'
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
    echo "usage: scripts/stage.sh format|build|python DIR|asan|tsan|fuzz|no_cpu|installed|long|aarch64" >&2
    exit 2
    ;;
esac
