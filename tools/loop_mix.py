#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the inner loops of compiled kernels consist of.

    tools/loop_mix.py [--objdump PROGRAM] [--mca CPU[,CPU]...] [--llvm-mca PROGRAM] OBJECT REGEX...

For each function of OBJECT whose demangled name matches every REGEX, and each innermost loop of it that
multiplies: instructions an iteration, by kind. With --mca also cycles an iteration and the products issued
a cycle, as llvm-mca's model of that CPU has them (all loads hit L1). AArch64 only.
"""
import argparse
import collections
import re
import subprocess

PRODUCT = re.compile(r"(bfdot|bfmmla|bfmlal[bt]|fmla|fmls)$")
LOAD = re.compile(r"(ld[pru1]\w*|ldnp)$")
STORE = re.compile(r"(st[pru1]\w*)$")
WIDEN = re.compile(r"(shll2?|[us]shll2?|fcvtl2?|zip[12]|dup|mov|fmov|ext|uzp[12]|trn[12]|tbl)$")


def kind_of(mnemonic):
    if PRODUCT.match(mnemonic):
        return mnemonic
    if mnemonic.startswith("prfm"):
        return "prefetch"
    for name, pattern in (("load", LOAD), ("store", STORE), ("move or widen", WIDEN)):
        if pattern.match(mnemonic):
            return name
    return "other"


def functions(objdump, path):
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    name, body = None, []
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if head:
            if body:
                yield name, body
            name, body = head.group(1), []
            continue
        code = re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", line)
        if code and name:
            operands = code.group(3).split("//")[0].strip()
            body.append((int(code.group(1), 16), code.group(2), operands))
    if body:
        yield name, body


def innermost_loops(body):
    """Backward branches whose range holds no other."""
    ranges = []
    for address, mnemonic, operands in body:
        target = re.search(r"(?:0x|\b)([0-9a-f]+) <", operands)
        if target and re.match(r"(b|b\.\w+|cbn?z|tbn?z)$", mnemonic):
            to = int(target.group(1), 16)
            if body[0][0] <= to <= address:
                ranges.append((to, address))
    for low, high in sorted(set(ranges)):
        if not any((a, b) != (low, high) and low <= a and b <= high for a, b in ranges):
            yield [line for line in body if low <= line[0] <= high]


def cycles_of(loop, mca, cpu):
    """Cycles an iteration: the difference of two lengths, so that start and end cancel."""
    lines = []
    for _, mnemonic, operands in loop:
        operands = re.sub(r"(?:0x|\b)[0-9a-f]+ <.*", "0", operands)
        lines.append(f"{mnemonic} {operands}")
    totals = []
    for iterations in (100, 300):
        out = subprocess.run([mca, "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+bf16",
                              f"-iterations={iterations}"],
                             input="\n".join(lines), check=True, text=True, stdout=subprocess.PIPE).stdout
        totals.append(int(re.search(r"Total Cycles:\s+(\d+)", out).group(1)))
    return (totals[1] - totals[0]) / 200


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objdump", default="llvm-objdump-19")
    parser.add_argument("--llvm-mca", default="llvm-mca-19")
    parser.add_argument("--mca", default="", help="CPU names as llvm-mca knows them")
    parser.add_argument("--least", type=int, default=8, help="products a loop must have")
    parser.add_argument("object")
    parser.add_argument("regex", nargs="+")
    args = parser.parse_args()
    for name, body in functions(args.objdump, args.object):
        if not all(re.search(regex, name) for regex in args.regex):
            continue
        for loop in innermost_loops(body):
            counts = collections.Counter(kind_of(mnemonic) for _, mnemonic, _ in loop)
            products = sum(n for kind, n in counts.items() if PRODUCT.match(kind))
            if products < args.least:
                continue
            mix = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
            print(f"{name}\n  {len(loop)} instructions: {mix}; products: {products / len(loop):.0%}")
            for cpu in filter(None, args.mca.split(",")):
                cycles = cycles_of(loop, args.llvm_mca, cpu)
                print(f"  {cpu}: {cycles:.1f} cycles, {products / cycles:.2f} products a cycle")


if __name__ == "__main__":
    main()
