#!/bin/bash
# Build, measure, and write bench/results/NAME.json. NAME: BENCH_NAME, or the CPU's. Arguments go to `binmoe bench`;
# without any, the sizes of docs/design.md, section 6, in bf16 and f32, and plans of 131 thousand and 1 million ids.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset bench
cmake --build --preset bench
measured=$(mktemp -d)
trap 'rm -rf "$measured"' EXIT
program=build/bench/bin/binmoe

run() {
  local file="$measured/$(find "$measured" -name '*.json' | wc -l)"
  printf '== %s bench %s\n' "$program" "$*"
  printf '%s ' "$program" bench "$@" >"$file.command"
  "$program" bench --json "$@" >"$file.json"
}

if (($#)); then
  run "$@"
else
  run
  run --dtype f32 --routing uniform
  run --op plan --model qwen3-30b,mixtral-8x7b --tokens 16384,131072
  run --op plan --model qwen3-30b --tokens 64 --threads 1
  run --model mixtral-8x7b --routing uniform,one --tokens 1024,4096,16384
fi
python3 scripts/bench_record.py "$measured" "${BENCH_NAME:-}"
