#!/usr/bin/env bash
# Makes .venv and prints the path of its Python (everything else goes to stderr).
#
#   usage: dev_env.sh run|test
#
# run: the project, editable, with what the sidecar needs. test: the developers' tools and torch
# as well, for the digest's tests.
set -euo pipefail

readonly LEVEL=${1:?usage: dev_env.sh run|test}
cd "$(dirname "$0")/.."
readonly VENV="$PWD/.venv"
readonly PYTHON=${PYTHON:-python3}
readonly TORCH=2.13.0

say() { printf '%s\n' "dev-env: $*" >&2; }
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check --quiet "$@" >&2; }

case "$LEVEL" in
  run) readonly EXTRAS=sidecar ;;
  test) readonly EXTRAS=sidecar,dev ;;
  *) say "unknown level '$LEVEL': run or test"; exit 2 ;;
esac

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { say "$PYTHON is older than Python 3.11; set PYTHON to a newer one"; exit 2; }

key=$({ cat pyproject.toml; echo "$PWD $TORCH"; } | sha256sum | cut -c1-32)
mkdir -p .cache
exec 9>"$PWD/.cache/venv.lock"
flock -w 600 9 || { say "another build holds .cache/venv.lock"; exit 3; }
if [ "$(cat "$VENV/.stamp-$LEVEL" 2>/dev/null)" != "$key" ]; then
  say "installing for '$LEVEL' into .venv"
  [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
  if [ "$LEVEL" = test ]; then
    # The CPU build where pip's index has it, else the ordinary one.
    pip install "torch==$TORCH+cpu" 2>/dev/null || pip install "torch==$TORCH"
  fi
  pip install --editable ".[$EXTRAS]"
  echo "$key" >"$VENV/.stamp-$LEVEL"
  [ "$LEVEL" = test ] && echo "$key" >"$VENV/.stamp-run"
fi
echo "$VENV/bin/python"
