#!/usr/bin/env bash
# CRIU's --action-script: marks before a dump, says after it that it was taken, and after a
# restore that the worker runs again.
#
#   criu dump    ... --action-script deploy/hooks/criu-action.sh
#   criu restore ... --action-script deploy/hooks/criu-action.sh
#
# Environment: TOKENWITNESS_WORKER (required), TOKENWITNESS_MARK (default: the image folder's
# name), TOKENWITNESS_SIDECAR, and TOKENWITNESS_STRICT=1 to let a failed mark fail the dump. By
# default nothing here makes CRIU fail: a checkpoint without a mark is worth more than none.
set -uo pipefail

action=${CRTOOLS_SCRIPT_ACTION:-}
case $action in
  pre-dump | post-dump | post-resume) ;;
  *) exit 0 ;; # CRIU calls for many stages
esac

fail() {
  printf 'tokenwitness hook, %s: %s\n' "$action" "$1" >&2
  [ "${TOKENWITNESS_STRICT:-0}" = 1 ] && exit 1
  exit 0
}

worker=${TOKENWITNESS_WORKER:-}
[ -n "$worker" ] || fail "TOKENWITNESS_WORKER is not set; name the worker as its adapter does"
image=${CRTOOLS_IMAGE_DIR:-}
mark=${TOKENWITNESS_MARK:-$(basename "${image:-}")}
[ -n "$mark" ] || fail "TOKENWITNESS_MARK is not set and CRIU named no image folder"

case $action in
  pre-dump) command=(mark --worker "$worker" --name "$mark") ;;
  post-dump) command=(mark --worker "$worker" --name "$mark" --complete --image "$image") ;;
  # Without --wait: the worker's own threads have to run for there to be a verdict.
  post-resume) command=(restored --worker "$worker" --mark "$mark") ;;
esac
timeout "${TOKENWITNESS_HOOK_TIMEOUT_S:-60}" tokenwitness "${command[@]}" >&2 ||
  fail "\`tokenwitness ${command[*]}\` ended with $?"
