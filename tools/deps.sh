#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Highway (>= 1.2), Catch2 (>= 3.4) and Google Benchmark into PREFIX/usr, from the package
# mirror this machine's apt already uses and verified by apt. Nothing is installed on the machine,
# root is not needed, and a second call does nothing.
#   tools/deps.sh [PREFIX [ARCHITECTURE]]
# PREFIX defaults to .deps, ARCHITECTURE, in Debian's words (arm64), to the machine's own.
# Fails where no such package can be had; then configure with -DLATHE_FETCH_DEPS=ON.
set -euo pipefail
die() { echo "deps.sh: $*" >&2; exit 1; }

self=$(realpath "${BASH_SOURCE[0]}")
prefix=$(realpath -m "${1:-$(dirname "$self")/../.deps}")
stamp=$prefix/stamp
recipe=$(sha256sum <"$self")
[ "$(cat "$stamp" 2>/dev/null)" = "$recipe" ] && exit 0

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "this is no Debian or Ubuntu"
architecture=${2:-$(dpkg --print-architecture)}
[ ! -e "$prefix/usr" ] || [ -e "$stamp" ] || die "$prefix/usr is there and not made by this script"
. /etc/os-release
mkdir -p "$prefix"
work=$(mktemp -d "$prefix/apt.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,cache/archives}/partial "$work/debs"

# apt with its own lists and cache, so that neither root nor the machine's state is involved.
options=(-q -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Debug::NoLocking=1
  -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
  -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false
  -o APT::Architecture="$architecture" -o APT::Architectures="$architecture"
  -o APT::Get::AllowUnauthenticated=false -o Acquire::AllowInsecureRepositories=false)

if [ "${VERSION_CODENAME:-}" = bookworm ]; then
  # Debian 12's own Highway is 1.0 and its Catch2 is 2. Debian 13's shared libhwy asks for no newer C
  # library than 12 has, so it runs here; its static Catch2 would not, hence backports for that.
  uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk '$2 == "bookworm" && !n++ {print $1}')
  [ -n "$uri" ] || die "apt has no source for bookworm"
  key=
  for k in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do [ -e "$k" ] && key=$k; done
  [ -n "$key" ] || die "the package debian-archive-keyring is missing"
  for suite in trixie bookworm-backports bookworm; do
    echo "deb [signed-by=$key] $uri $suite main"
  done >"$work/sources.list"
  options+=(-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null)
  packages=({libhwy-dev,libhwy1t64}/trixie libcatch2-dev/bookworm-backports
            {libbenchmark-dev,libbenchmark1debian}/bookworm)
fi
echo "deps.sh: reading package lists"
apt-get "${options[@]}" update >"$work/log" 2>&1 || { cat "$work/log" >&2; die "apt-get update failed"; }

if [ -z "${packages:-}" ]; then
  packages=(libhwy-dev libcatch2-dev libbenchmark-dev)
  mapfile -t -O 3 packages < <(apt-cache "${options[@]}" depends "${packages[@]}" |
    awk '$1 == "Depends:" && $2 ~ /^lib(hwy|benchmark)/ {print $2}' | sort -u)
fi
echo "deps.sh: fetching ${packages[*]}"
(cd "$work/debs" && apt-get "${options[@]}" download "${packages[@]}") >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; die "a package is not to be had"; }

at_least() {
  local version
  version=$(dpkg-deb -f "$work"/debs/"$1"_*.deb Version)
  dpkg --compare-versions "$version" ge "$2" || die "$1 is $version here, $2 is needed"
}
at_least libhwy-dev 1.2
at_least libcatch2-dev 3.4
for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
rm -rf "$prefix/usr"
mv "$work/root/usr" "$prefix/usr"
echo "$recipe" >"$stamp"
echo "deps.sh: $(cd "$work/debs" && ls | awk -F_ '{printf "%s%s %s", s, $1, $2; s = ", "}')"
