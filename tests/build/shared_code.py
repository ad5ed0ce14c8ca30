#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shared_code.py [--let NAME]... BASELINE.o WIDE.o: of what both objects define weakly the linker takes either one for
both. No function of lathe or Highway among those may hold code that a baseline CPU lacks; prints each that does. --let
lets names pass that the regular expression matches. objdump and nm come from the path, or NM and OBJDUMP."""

import argparse
import os
import re
import subprocess
import sys

# VEX and EVEX code has mnemonics that begin with v, masks k; the rest is BMI, LZCNT and MOVBE.
WIDE = re.compile(r"\t(v[a-z]\w+|k(mov|or|and|xor|xnor|not|add|test|shift|unpck)\w+|andn|bextr|bls\w+|bzhi|mulx|pdep|pext|"
                  r"rorx|sarx|shlx|shrx|lzcnt|tzcnt|popcnt|movbe)\b")


def run(tool, *arguments):
    return subprocess.run([os.environ.get(tool.upper(), tool), *arguments], check=True, capture_output=True,
                          text=True).stdout


def weak(path):
    symbols = (line.split() for line in run("nm", "--defined-only", path).splitlines())
    return {symbol[2] for symbol in symbols if len(symbol) == 3 and symbol[1] in "WV"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--let", action="append", default=[])
    parser.add_argument("baseline")
    parser.add_argument("wide")
    args = parser.parse_args()
    common = weak(args.baseline) & weak(args.wide)
    if not weak(args.wide):
        sys.exit(f"{args.wide} defines nothing weakly: this check sees nothing")
    faults = 0
    code = run("objdump", "-d", "--no-show-raw-insn", args.wide)
    for symbol, body in re.findall(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)*)", code, re.MULTILINE):
        found = WIDE.search(body) if symbol in common else None
        if found is None:
            continue
        name = subprocess.run(["c++filt", symbol], check=True, capture_output=True, text=True).stdout.strip()
        # The standard library's own functions stay as their headers have them.
        if not re.search(r"\b(lathe|hwy)::", name) or any(re.search(let, name) for let in args.let):
            continue
        print(f"{found.group(1)} in {name}")
        faults += 1
    print(f"{len(common)} functions in both, {faults} with wide code")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
