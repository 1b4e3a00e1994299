#!/bin/bash
# Install what is missing on Debian 12: `setup.sh demo` for the core, `setup.sh all` for the tests as well, `setup.sh
# ascend` for the checks of the Triton-Ascend kernels alone.
# As root or with sudo that asks no password it installs; otherwise it prints the one line to run and stops.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build libhwy-dev libcli11-dev nlohmann-json3-dev)
case "${1:-}" in
  demo) ;;
  all)
    packages+=(git libgtest-dev librapidcheck-dev clang-14 clang-format-14 libclang-rt-14-dev llvm-14
      g++-aarch64-linux-gnu qemu-user python3 python3-dev python3-venv)
    ;;
  ascend) packages=(gcc python3 python3-venv) ;;
  *)
    echo "usage: scripts/setup.sh demo|all|ascend" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is no Debian; install the like of these yourself: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done

if ((${#missing[@]})); then
  if ((EUID == 0)); then
    as_root=(env)
  elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
  else
    echo "setup: packages are missing; run this, then the same again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# The stamp is a copy of the list, so that a changed list installs again.
make_venv() {  # folder, list
  ! cmp -s "$2" "$1/installed.txt" || [[ $1 == .venv && ! -d .venv/wheels ]] || return 0
  echo "setup: making $1 from $2"
  python3 -m venv --clear "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2"
  # What `pip install .` asks the index for, so that the stage of that name needs none.
  [[ $1 != .venv ]] || grep -E '^(ml_dtypes|nanobind|numpy|scikit-build-core)==' "$2" |
    "$1/bin/python" -m pip download --quiet --disable-pip-version-check --dest "$1/wheels" -r /dev/stdin
  cp "$2" "$1/installed.txt"
}
[[ $1 != all ]] || make_venv .venv requirements-dev.txt
[[ $1 == demo ]] || make_venv .venv-ascend requirements-ascend.txt
