#!/usr/bin/env bash
# Every check of the project, stage by stage, each with its time. The cheap stages all run and
# report; the stages with a real engine run only if they passed.
#
#   usage: test_all.sh [STAGE]...      (no stage: all)
set -uo pipefail
cd "$(dirname "$0")/.."

readonly CHEAP=(packages venv lint types stubs contract unit)
readonly COSTLY=(engine-env model criu engines e2e)
readonly PY=.venv/bin/python
failed=()

stage_packages() { tools/system_packages.sh; }
stage_venv() { tools/dev_env.sh test; }
stage_lint() { .venv/bin/ruff check . && .venv/bin/ruff format --check . && bash -n tools/*.sh .ci/run; }
stage_types() { .venv/bin/mypy && .venv/bin/mypy tools; }
stage_stubs() { tools/stubs_current.sh "$PY"; }
stage_contract() {
  .venv/bin/buf lint && .venv/bin/buf breaking --against proto/buf-image.binpb
}
stage_unit() { "$PY" -m pytest tests/unit; }
stage_engine-env() { tools/engine_env.sh vllm; }
stage_model() { make --no-print-directory model; }
stage_criu() { tools/build_criu.sh; }
stage_engines() {
  local engine shadow=tests/engines/test_shadow_vllm.py
  engine=$(tools/engine_env.sh vllm) || return
  "$engine" -m pytest tests/engines --ignore "$shadow" &&
    # Replays are the sidecar's: they run in its environment, against a server of the engine's.
    TOKENWITNESS_VLLM_PYTHON=$engine "$PY" -m pytest "$shadow"
}
stage_e2e() { "$PY" -m pytest tests/e2e; }

run_stage() {
  local name=$1 began=$SECONDS
  printf '\n=== %s\n' "$name"
  if "stage_$name"; then
    printf '=== %s: ok, %d s\n' "$name" $((SECONDS - began))
  else
    printf '=== %s: FAILED, %d s\n' "$name" $((SECONDS - began))
    failed+=("$name")
  fi
}

stop_if_failed() {
  [ ${#failed[@]} -eq 0 ] && return
  printf '\n%d s in all; failed: %s\n' "$SECONDS" "${failed[*]}"
  exit 1
}

if [ $# -gt 0 ]; then
  for name in "$@"; do run_stage "$name"; done
else
  for name in "${CHEAP[@]}"; do run_stage "$name"; done
  stop_if_failed
  for name in "${COSTLY[@]}"; do run_stage "$name"; done
fi
stop_if_failed
printf '\nall stages passed, %d s\n' "$SECONDS"
