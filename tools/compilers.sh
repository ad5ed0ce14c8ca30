#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/compilers.sh COMPILER... : with each of these C++ compilers (names or paths: g++-11 clang++-19) builds the tests of
# dispatch and top-k and the programs with static.h, for a few targets at -O1, and runs them. Highway and Catch2 are
# those of .deps, or the system's. Prints one line for each compiler; its log is build/compilers/NAME.log.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
mkdir -p build/compilers
failed=0
for cxx in "$@"; do
  name=$(basename "$cxx")
  build=build/compilers/$name
  if {
    cmake --preset release -B "$build" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
      -DCMAKE_CXX_FLAGS='-DLATHE_DISABLED_TARGETS="(HWY_AVX3|HWY_AVX3_SPR)"' \
      '-DLATHE_TEST_FILES=/tests/(dispatch|topk)/' -DLATHE_BUILD_BENCHMARKS=OFF -DLATHE_BUILD_EXAMPLES=OFF &&
      cmake --build "$build" --target lathe_tests build_static &&
      "$build/tests/lathe_tests" && ctest --test-dir "$build" --no-tests=error --output-on-failure -R '^build\.static'
  } >"build/compilers/$name.log" 2>&1; then
    echo "$name: ok, $("$cxx" --version | head -1)"
  else
    echo "$name: FAILED, see build/compilers/$name.log"
    failed=1
  fi
done
exit $failed
