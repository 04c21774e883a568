#!/bin/sh
# Builds, checks and installs all artefacts of a release from the committed state, and leaves them in dist/.
# Usage: release_check.sh [TAG]
set -eu
cd "$(dirname "$0")/.."
python3 scripts/release.py check "$@"
state=${1:-HEAD}
checkout=$(mktemp -d)
trap 'rm -rf "$checkout"' EXIT
git archive "$state" | tar -x -C "$checkout"
(cd "$checkout" && make check-wheels check-package)
.venv/bin/uv tool run --quiet twine check --strict "$checkout"/dist/*.whl "$checkout"/dist/*.tar.gz
rm -rf dist
cp -r "$checkout/dist" dist
ls -l dist
