#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A build without CMake: CXX=... CC=... PKG_CONFIG_PATH=... build.sh SOURCE PROGRAM MODULE
set -eu
case $1 in
  *.c) compile="${CC:-cc} -std=c99" ;;
  *) compile="${CXX:-c++} -std=c++17" ;;
esac
libdir=$(pkg-config --variable=libdir "$3")
# shellcheck disable=SC2046,SC2086  # flags are words
$compile ${CXXFLAGS:-} "$1" $(pkg-config --cflags --libs "$3") "-Wl,-rpath,$libdir" -o "$2"
"$2"
