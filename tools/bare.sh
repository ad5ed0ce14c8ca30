#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The first hour of somebody new: a system of which nothing is installed but the base and apt, a clone of this tree
# (as committed), and the commands of the README.
#
#   tools/bare.sh debian12|debian13|sid [--short] [--compiler CXX]... [--keep FOLDER]
#
# Without options: the smallest example, a row of the benchmark, and every test, whose summary closes the output.
# --short: the smallest example, and of the tests targets, one operation and ways to consume lathe.
# --compiler, instead of all that: targets, one operation and static.h by that compiler (g++-11, clang++-19), which is
# installed first; g++ and clang++ are the system's own. To be tried by hand beside those of .ci/run:
#   tools/bare.sh debian12 --compiler g++-11 --compiler clang++-14 --compiler clang++-16 --compiler clang++-19
#   tools/bare.sh debian13 --compiler g++-13 --compiler clang++-19
# --keep leaves the system in FOLDER, and starts from one that is there. LATHE_CMAKE_ARGS goes to all ./dev.
#
# Needs root and mmdebstrap or debootstrap. Packages come from the mirror that this machine's apt uses (or from
# $LATHE_BARE_MIRROR), verified by Debian's keys. Of this machine the system sees the CPU, the network
# and the settings of apt and proxies that the mirror may take.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
die() { echo "bare.sh: $*" >&2; exit 1; }
usage() { sed -n '4,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }

short='' keep='' compilers=()
case ${1:-} in
  debian12) suite=bookworm ;;
  debian13) suite=trixie ;;
  sid) suite=sid ;;
  *) usage >&2; exit 2 ;;
esac
shift
while [ $# -gt 0 ]; do
  case $1 in
    --short) short=yes; shift ;;
    --compiler) compilers+=("${2:?--compiler needs a name}"); shift 2 ;;
    --keep) keep=$(realpath -m "${2:?--keep needs a folder}"); shift 2 ;;
    *) usage >&2; exit 2 ;;
  esac
done
[ "$(id -u)" -eq 0 ] || die "makes a file system with devices, which takes root"
unshare --mount --pid --fork true 2>/dev/null || die "needs the right to mount (a privileged container)"

mirror=${LATHE_BARE_MIRROR:-}
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT)' \
  'Created-By: Packages' | awk '$2 == "Debian" && $3 == "main" && $1 !~ /security/ && !n++ {print $1}')
[ -n "$mirror" ] || die "apt knows no mirror of Debian here; name one in LATHE_BARE_MIRROR"
keyring=
for k in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do [ ! -e "$k" ] || keyring=$k; done
[ -n "$keyring" ] || die "the package debian-archive-keyring is missing"

root=$keep
if [ -z "$root" ]; then
  root=$(mktemp -d "${TMPDIR:-/tmp}/bare-$suite.XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
settings=$(mktemp)
apt-config dump | grep -Ei '^Acquire::(https?::(Proxy|Timeout)|Retries|Check-|ForceIPv)' >"$settings" || true

step() { printf '\n==== %s: %s (%d s)\n' "$suite" "$*" "$SECONDS"; }

step "a system of its own"
if [ -e "$root/etc/debian_version" ]; then
  echo "$root is there"
elif command -v mmdebstrap >/dev/null; then
  mmdebstrap --quiet --mode=root --variant=minbase --format=directory --keyring="$keyring" \
    --aptopt="$settings" "$suite" "$root" "$mirror"
elif command -v debootstrap >/dev/null; then
  debootstrap --variant=minbase --keyring="$keyring" "$suite" "$root" "$mirror" >/dev/null
  cp "$settings" "$root/etc/apt/apt.conf.d/99settings"
else
  die "needs mmdebstrap or debootstrap"
fi
rm "$settings"
cp /etc/resolv.conf "$root/etc/resolv.conf"
rm -rf "$root/root/lathe"
git clone --quiet --no-local . "$root/root/lathe"

# inside COMMAND...: in the system, with no processes, mounts or environment but its own.
inside() {
  local proxies=() name
  for name in http_proxy https_proxy no_proxy; do [ -z "${!name:-}" ] || proxies+=("$name=${!name}"); done
  unshare --mount --pid --fork --kill-child bash -euc '
    mount -t proc proc "$1/proc"
    mount -t sysfs -o ro sysfs "$1/sys"
    mount -t tmpfs tmpfs "$1/dev/shm"
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${@:2}"' \
    - "$root" "${proxies[@]}" chroot "$root" bash -c 'cd /root/lathe && exec "$@"' - "$@"
}

# A cut of the tests, for which the kernels of all targets are compiled once, not a dozen times.
part="-DLATHE_TEST_FILES=/tests/(dispatch/cpu|base/target|mla_decode/known_answers)_test
  -DLATHE_TEST_BUILDS=OFF -DLATHE_TEST_CONSUMERS=ON -DLATHE_BUILD_BENCHMARKS=OFF -DLATHE_BUILD_EXAMPLES=OFF"

if [ ${#compilers[@]} -gt 0 ]; then
  for compiler in "${compilers[@]}"; do
    step "$compiler"
    inside env LATHE_CXX="$compiler" LATHE_CMAKE_ARGS="${LATHE_CMAKE_ARGS:-} $part -DLATHE_BUILD_TOOLS=OFF" \
      ./dev test --all \
      -E '^consumers\.(vcpkg|conan|registry|archive|add|fetch|header|c_lib|find|pkg|ctypes)|^docs'
  done
  exit
fi
step "the smallest example"
inside env LATHE_CMAKE_ARGS="${LATHE_CMAKE_ARGS:-}" ./dev demo 00_hello
if [ -n "$short" ]; then
  step "some tests"
  inside env LATHE_CMAKE_ARGS="${LATHE_CMAKE_ARGS:-} $part" \
    ./dev test --all -E '^consumers\.(vcpkg|conan|registry|archive)'
  exit
fi
step "a row of the benchmark"
inside env LATHE_CMAKE_ARGS="${LATHE_CMAKE_ARGS:-}" LATHE_BENCH_COMPARATORS=0 ./dev bench '^MlaDecode/heads:16/keys:4096/.*bf16.*threads:1/cache:warm$'
step "the tests"
inside env LATHE_CMAKE_ARGS="${LATHE_CMAKE_ARGS:-}" ./dev test --all
