#!/bin/bash
# Everything that must hold; ends on ctest's summary. Set-up is scripts/setup.sh all.
set -euo pipefail
cd "$(dirname "$0")/.."

announce() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }
announce "formats"
scripts/stage.sh format
announce "build/tests"
scripts/stage.sh build
announce "tests and stages; a stage's output shows when it fails, and stands in build/stages/Testing/Temporary"
cmake -S scripts/stages -B build/stages >/dev/null
exec ctest --test-dir build/stages --output-on-failure --no-tests=error --stop-on-failure -LE long
