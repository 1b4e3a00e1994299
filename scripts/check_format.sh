#!/bin/bash
# Is every file of the tree as the formatters and scripts/check_text.py want it? `make format` mends what can be mended.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

# Files that git knows or would add; a file deleted but not yet committed is left out.
mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard | sort -zu |
  while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done)
if ((${#files[@]} == 0)); then
  echo "check_format: git lists no files here" >&2
  exit 1
fi

compiled=() python=()
for file in "${files[@]}"; do
  case $file in
    *.c | *.cc | *.h | *.cu | *.cuh) compiled+=("$file") ;;
    *.py) python+=("$file") ;;
  esac
done

if [[ ${1:-} == --fix ]]; then
  ((${#compiled[@]} == 0)) || clang-format-14 -i "${compiled[@]}"
  ((${#python[@]} == 0)) || ruff check --quiet --fix "${python[@]}" || true
  ((${#python[@]} == 0)) || ruff format --quiet "${python[@]}"
fi
((${#compiled[@]} == 0)) || clang-format-14 --dry-run -Werror "${compiled[@]}"
((${#python[@]} == 0)) || ruff check --quiet "${python[@]}"
((${#python[@]} == 0)) || ruff format --check "${python[@]}"
python3 scripts/check_text.py "${files[@]}"
echo "format: ${#files[@]} files are in order"
