#!/usr/bin/env bash
# Fails when the committed stubs are not what tools/generate_stubs.sh writes now.
set -euo pipefail
python=${1:?usage: stubs_current.sh PYTHON}
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
tools/generate_stubs.sh "$python" "$fresh"
stale=0
for stub in "$fresh"/tokenwitness/v1/*; do
  cmp -s "$stub" "proto/tokenwitness/v1/$(basename "$stub")" \
    || { echo "stale: proto/tokenwitness/v1/$(basename "$stub")"; stale=1; }
done
[ "$stale" = 0 ] || { echo "run: make stubs"; exit 1; }
