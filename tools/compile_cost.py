#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_cost.py [--runs N] [--flags FLAGS] [--only REGEX] [COMPILER...]

What it costs to compile lathe, as a Markdown table: for each of the ways to include it and each compiler (g++ and
clang++) seconds of one core (user and system, the least of N runs), peak memory and size of code with constants.
Highway is taken from .deps/ or from the system. --only: the rows whose name matches. Measure on a quiet machine."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
AVX2 = "-march=haswell -maes -mpclmul"

# What the unit is, its text, flags of its own.
UNITS = [
    ("a file that uses `lathe/lathe.h`", "#include <lathe/lathe.h>\n", ""),
    ("a file that uses `lathe/capi.h`", "#include <lathe/capi.h>\n", ""),
    ("`lathe/impl.h`, all targets", "#include <lathe/impl.h>\n", ""),
    ("`lathe/impl.h` without `avx3`", "#include <lathe/impl.h>\n", "-DLATHE_DISABLED_TARGETS=HWY_AVX3"),
    ("`lathe/impl.h`, `avx2` and `portable`", "#include <lathe/impl.h>\n",
     "-DLATHE_DISABLED_TARGETS=(HWY_AVX3|HWY_AVX3_ZEN4)"),
    ("`lathe/impl.h`, `portable` alone", "#include <lathe/impl.h>\n", "-DLATHE_DISABLED_TARGETS=(~0LL)"),
    (f"`lathe/static.h`, decode alone, `{AVX2}`",
     "#define LATHE_CONSUMER_STATIC\n#include \"tests/consumers/decode.cc\"\n", AVX2),
    ("`lathe/capi_impl.h` beside it", "#include <lathe/capi_impl.h>\n", ""),
]


def compile_once(command):
    """(seconds, MB)"""
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def text_kb(path):
    lines = subprocess.run(["size", path], check=True, capture_output=True, text=True).stdout.split("\n")
    return int(lines[1].split()[0]) / 1000


def measure(compiler, text, flags, options, folder):
    source, object_file = folder / "unit.cc", folder / "unit.o"
    source.write_text(text, encoding="utf-8")
    highway = ROOT / ".deps" / "usr" / "include"
    command = [compiler, "-std=c++17", *options.flags.split(), *flags.split(), "-I", ROOT / "include", "-I", ROOT,
               *(["-isystem", highway] if highway.is_dir() else []), "-c", source, "-o", object_file]
    runs = [compile_once(command) for _ in range(options.runs)]
    seconds, megabytes = min(runs)
    return f"{seconds:.2f} s, {megabytes:.0f} MB, {text_kb(object_file):.0f} KB"


def name_of(compiler):
    line = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0]
    kind = "Clang" if "clang" in line else "GCC"
    return f"{kind} {re.search(r'[0-9]+[.][0-9]+[.0-9]*', line).group(0)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--flags", default="-O2")
    parser.add_argument("--only", default="")
    parser.add_argument("compilers", nargs="*", metavar="COMPILER")
    options = parser.parse_args()
    compilers = options.compilers or [c for c in ("g++", "clang++") if shutil.which(c)]
    print("| " + " | ".join([f"translation unit, {options.flags}", *map(name_of, compilers)]) + " |")
    print("| --- " * (len(compilers) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, text, flags in (unit for unit in UNITS if re.search(options.only, unit[0])):
            cells = [measure(compiler, text, flags, options, pathlib.Path(folder)) for compiler in compilers]
            print("| " + " | ".join([name, *cells]) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
