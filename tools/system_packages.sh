#!/usr/bin/env bash
# Installs what the demo and the tests need from the machine's own distribution: Python with
# venv, and nft (CRIU's network lock). Does nothing where they are there, and says what is
# missing where it cannot install it.
set -euo pipefail

missing=()
command -v "${PYTHON:-python3}" >/dev/null || missing+=(python3)
"${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
[ -n "$(command -v nft || ls /usr/sbin/nft 2>/dev/null)" ] || missing+=(nftables)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "system-packages: install ${missing[*]} first (root and apt-get are needed to do it here)" >&2
  exit 3
fi
echo "system-packages: installing ${missing[*]}" >&2
apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
