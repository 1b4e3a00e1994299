#!/bin/bash
# Build, measure, and write bench/results/NAME.json; arguments go to `binmoe bench`. NAME: BENCH_NAME, or the CPU's.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset bench >/dev/null
cmake --build --preset bench
measured=$(mktemp)
trap 'rm -f "$measured"' EXIT
build/bench/bin/binmoe bench --json "$@" >"$measured"
python3 scripts/bench_record.py "$measured" "${BENCH_NAME:-}" build/bench/bin/binmoe bench --json "$@"
