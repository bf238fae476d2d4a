#!/usr/bin/env bash
# Prints the path of a CRIU that can dump the engine: the machine's own if it is new enough,
# else one built in the cache from the distribution's source package of its newest release.
#
# The machine's own apt configuration and package lists are read, never written: the mirror
# comes from its configured sources, the newer suite goes into a sources file and a lists
# folder of our own. Build dependencies are installed from the machine's own release.
#
# Exit: 0 and the path on stdout; 3 if there is none and none could be built (the reason on
# stderr). Everything but the path goes to stderr.
set -euo pipefail

# 3.17 does not know the vDSO of new kernels; 4.1 fails on kernels from 6.16 (SO_PASSCRED).
readonly MINIMUM=4.2
readonly CACHE="${TOKENWITNESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tokenwitness}"
readonly HOME_DIR="$CACHE/criu"
readonly BUILD_PACKAGES=(
  build-essential dpkg-dev pkg-config protobuf-compiler protobuf-c-compiler libprotobuf-dev
  libprotobuf-c-dev uuid-dev libbsd-dev libnftables-dev libcap-dev libnl-3-dev libnet1-dev
  libaio-dev libgnutls28-dev libdrm-dev nftables
)

say() { printf '%s\n' "criu: $*" >&2; }
give_up() { say "$*"; exit 3; }

version_of() { "$1" --version 2>/dev/null | sed -n 's/^Version: //p'; }

new_enough() {
  local version
  version=$(version_of "$1")
  [ -n "$version" ] && [ "$(printf '%s\n' "$MINIMUM" "$version" | sort -V | head -n 1)" = "$MINIMUM" ]
}

existing() {
  local candidate
  for candidate in "${TOKENWITNESS_CRIU:-}" "$(command -v criu || true)" /usr/sbin/criu \
    "$HOME_DIR/sbin/criu"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && new_enough "$candidate"; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# The suite that carries the newest packages of this distribution, and its keyring.
newest_suite() {
  case "${ID:-}:${ID_LIKE:-}" in
    debian:*) echo "sid main /usr/share/keyrings/debian-archive-keyring.gpg" ;;
    ubuntu:*) echo "devel universe /usr/share/keyrings/ubuntu-archive-keyring.gpg" ;;
    *) return 1 ;;
  esac
}

install_build_packages() {
  local missing=()
  local package
  for package in "${BUILD_PACKAGES[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' \
      || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing ${missing[*]}"
  { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
    || { apt-get update && DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends "${missing[@]}"; }; } >&2
}

# Downloads and unpacks the source package into $1/source.
fetch_source() {
  local work=$1 suite component keyring mirror
  # shellcheck disable=SC2154  # VERSION_CODENAME comes from os-release
  read -r suite component keyring <<<"$(newest_suite)" || return 1
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' \
    | awk -v release="$VERSION_CODENAME" '$2 == release { print $1; exit }')
  [ -n "$mirror" ] || { say "no source of release $VERSION_CODENAME is configured in apt"; return 1; }
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/source"
  local signed=""
  [ -r "$keyring" ] && signed="Signed-By: $keyring"
  printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: %s\n%s\n' \
    "$mirror" "$suite" "$component" "$signed" >"$work/newest.sources"
  local apt=(apt-get -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts"
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/archives"
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o APT::Sandbox::User=root)
  mkdir -p "$work/parts" && mv "$work/newest.sources" "$work/parts/"
  # The upstream archive alone: the packaging changes nothing that this build needs.
  (cd "$work/source" && "${apt[@]}" update && "${apt[@]}" source --download-only --tar-only criu \
    && mkdir tree && tar -xf criu_*.orig.tar.* --strip-components=1 -C tree) >&2 || return 1
}

build() {
  local work
  mkdir -p "$HOME_DIR"
  work=$(mktemp -d "$HOME_DIR/build.XXXXXX")
  # shellcheck disable=SC2064  # the path of now
  trap "rm -rf '$work'" EXIT
  install_build_packages || give_up "the build dependencies could not be installed"
  fetch_source "$work" || give_up "the source package could not be fetched"
  say "building (about a minute)"
  make -C "$work/source/tree" -j"$(nproc)" criu >"$HOME_DIR/build.log" 2>&1 \
    || give_up "the build failed, see $HOME_DIR/build.log"
  make -C "$work/source/tree" -j"$(nproc)" cuda_plugin >>"$HOME_DIR/build.log" 2>&1 \
    || say "without the CUDA plugin, see $HOME_DIR/build.log"
  new_enough "$work/source/tree/criu/criu" \
    || give_up "the newest package is $(version_of "$work/source/tree/criu/criu"), $MINIMUM is needed"
  mkdir -p "$HOME_DIR/sbin" "$HOME_DIR/plugins"
  find "$work/source/tree/plugins" -name '*.so' -exec install -t "$HOME_DIR/plugins" {} +
  install "$work/source/tree/criu/criu" "$HOME_DIR/sbin/criu"
}

if found=$(existing); then
  echo "$found"
  exit 0
fi
[ "$(id -u)" = 0 ] || give_up "no CRIU >= $MINIMUM found; building one needs root"
command -v apt-get >/dev/null || give_up "no CRIU >= $MINIMUM found, and this machine has no apt-get to build one"
# shellcheck disable=SC1091  # of the machine
. /etc/os-release
newest_suite >/dev/null || give_up "no CRIU >= $MINIMUM found; ${ID:-this system} is not one that it is built for"
mkdir -p "$HOME_DIR"
exec 9>"$HOME_DIR/lock"
flock -w 600 9 || give_up "another build holds $HOME_DIR/lock"
if found=$(existing); then
  echo "$found"
  exit 0
fi
build
existing || give_up "the build left no working program"
