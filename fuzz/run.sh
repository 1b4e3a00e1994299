#!/bin/bash
# Run one fuzzer over its kept corpus for FUZZ_SECONDS (60): run.sh PROGRAM CORPUS WORK_FOLDER. New inputs and crashes
# go to WORK_FOLDER; a crash ends with an error and libFuzzer prints the file's name.
set -euo pipefail
program=$1 corpus=$2 work=$3
mkdir -p "$work/new"
exec "$program" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=20 -rss_limit_mb=3000 -max_len=4096 -len_control=0 \
  -artifact_prefix="$work/" -print_final_stats=1 "$work/new" "$corpus"
