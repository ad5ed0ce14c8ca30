#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A build without CMake: CXX=... PKG_CONFIG_PATH=... build.sh SOURCE PROGRAM
set -eu
# shellcheck disable=SC2046,SC2086  # flags are words
${CXX:-c++} ${CXXFLAGS:-} -std=c++17 "$1" $(pkg-config --cflags --libs lathe-dispatch) -o "$2"
"$2"
