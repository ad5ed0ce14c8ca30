#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows through which headers a query pointer passes from RunMlaDecode to the store.

    tools/query_path.py [-I FOLDER]...      Highway's headers, if they are neither in .deps nor the compiler's own

Compiles one small decode without any inlining, runs it under gdb and stops in every function of lathe that it enters. The
pointer passes through a function if one of its parameters is the pointer, or holds it, in whatever struct, class or
closure; packed copies of the query count as it does. Prints the headers of these functions in the order of entry, with what
first called into each; then the calls that go back up, into a header that waits further up on the stack. Where it is a
closure that is called, the header is the one that handed it down. Exit status 1 for more than 20 headers, or for a call
back up that is no closure's."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = str(ROOT / "include" / "lathe") + os.sep
MOST_HEADERS = 20
ENTRY = "lathe::RunMlaDecode("
PACK = re.compile(r"\bPackGroup\b")  # writes a copy of the query to its argument `packed`
PROGRAM = """
#include <lathe/static.h>
static float query[4 * 64], cache[64 * 64], out[4 * 48], lse[4];
int main() {
  static int32_t table[8] = {0, 1, 2, 3, 4, 5, 6, 7}, lens[1] = {40};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.125f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(query, 1, 4, 64);
  args.keys.cache = lathe::LatentPages(cache, 8, 8, 64);
  args.keys.block_table = lathe::Packed(table, 1, 8);
  args.keys.seq_lens = lathe::Packed(lens, 1);
  args.out = lathe::Packed(out, 1, 4, 48);
  args.lse = lathe::Packed(lse, 1, 4);
  static std::byte plan_memory[1 << 16], workspace[1 << 20];
  const lathe::MlaDecodePlan* plan = nullptr;
  if (!lathe::PlanMlaDecode({4, 48, 16}, options, args, 1, {plan_memory, sizeof(plan_memory)}, &plan).ok()) return 1;
  return lathe::RunMlaDecode(*plan, args, {workspace, sizeof(workspace)}, {}).ok() ? 0 : 2;
}
"""


def trace():
    """Inside gdb: prints a line @ IS_BACK CALLER CALLEE FUNCTION for each entry of a function that the pointer reaches."""
    import gdb  # pylint: disable=import-error,import-outside-toplevel

    gdb.execute("set pagination off")
    gdb.execute("set breakpoint pending on")
    symbols = subprocess.run(["nm", "-C", gdb.current_progspace().filename], capture_output=True, text=True,
                             check=True).stdout
    places = set()  # behind the prologues, where parameters have their values
    for address in re.findall(r"^(?:0x)?([0-9a-f]+) [tTwW] .*\blathe::", symbols, re.MULTILINE):
        line = gdb.execute(f"info line *0x{address}", to_string=True)
        if found := re.search(rf'of "{re.escape(HEADERS)}[^"]+" starts .* ends at (0x[0-9a-f]+)', line, re.DOTALL):
            places.add(found[1])
    gdb.execute("break " + ENTRY.rstrip("("))
    gdb.execute("run")
    symbol = gdb.lookup_global_symbol("query") or gdb.lookup_static_symbol("query")
    begin = int(symbol.value().address)
    copies = [(begin, begin + symbol.type.sizeof)]  # the query, and what kernels pack of it
    carriers = set()  # addresses of objects that hold the pointer: what a void* to one of them holds, too

    def holds(value, depth, seen):
        try:
            return reaches(value, depth, seen)
        except gdb.MemoryError:  # a member that is not set
            return False

    def reaches(value, depth, seen):
        kind = value.type.strip_typedefs()
        if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            return holds(value.referenced_value(), depth, seen)
        if kind.code == gdb.TYPE_CODE_PTR:
            at, to = int(value), kind.target().strip_typedefs()
            if any(begin <= at < end for begin, end in copies) or to.code == gdb.TYPE_CODE_VOID and at in carriers:
                return True
            if at < 4096 or depth == 0 or to.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_PTR):
                return False
            return holds(value.dereference(), depth - 1, seen)
        if kind.code == gdb.TYPE_CODE_ARRAY:
            return any(holds(value[i], depth, seen) for i in range(min(kind.range()[1] + 1, 4)))
        if kind.code != gdb.TYPE_CODE_STRUCT:
            return False
        at = (int(value.address) if value.address is not None else 0, str(kind))
        if at in seen:
            return False
        seen.add(at)
        if any(holds(value[field], depth, seen) for field in kind.fields() if hasattr(field, "bitpos")):
            if at[0]:
                carriers.add(at[0])
            return True
        return False

    class Entry(gdb.Breakpoint):
        def stop(self):
            frame = gdb.newest_frame()
            if PACK.search(frame.name()):
                packed = int(frame.read_var("packed"))
                copies.append((packed, packed + symbol.type.sizeof))
            block = frame.block()
            while block.function is None:
                block = block.superblock
            # What a constructor makes has no values yet.
            is_constructor = re.search(r"\b(\w+)(<.*>)?::\1$", frame.name())
            carried = any([holds(argument.value(frame), 3, set()) for argument in block
                           if argument.is_argument and not (is_constructor and argument.name == "this")])
            if carried:
                stack, older = [], frame
                while older is not None:
                    file = str(older.find_sal().symtab)
                    if file.startswith(HEADERS) and [file] != stack[-1:]:
                        stack.append(file)
                    older = older.older()
                caller = stack[1] if len(stack) > 1 else stack[0]
                print(f"@ {stack[0] in stack[2:]:d} {caller} {stack[0]} {frame.name()}", flush=True)
            if self.hit_count > 20:
                self.enabled = False
            return False

    for place in places:
        Entry(f"*{place}", internal=True)
    gdb.execute("continue")


def main():
    include = [arg for arg in sys.argv[1:] if arg != "-I"] or [str(ROOT / ".deps" / "usr" / "include")]
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "decode.cc"), pathlib.Path(folder, "decode")
        source.write_text(PROGRAM)
        # Functions that are always inlined become functions of their own.
        subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", "-O0", "-g", "-w", "-no-pie",
                        "-Dalways_inline=noinline", "-I", ROOT / "include", *(f"-isystem{path}" for path in include), source, "-o", program],
                       check=True)
        done = subprocess.run(["gdb", "-nx", "-batch", "-x", __file__, program], capture_output=True, text=True,
                              check=False)
    calls = [line.split(" ", 4)[1:] for line in done.stdout.splitlines() if line.startswith("@ ")]
    if not calls or not any(PACK.search(function) for *_, function in calls):
        sys.exit(f"query_path: nothing traced\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    def short(path):
        return path.removeprefix(HEADERS)

    first, ups = {}, {}
    for is_back, caller, callee, function in calls:
        first.setdefault(short(callee), short(caller))
        if is_back == "1":
            ups.setdefault((short(caller), short(callee)), function)
    for number, (file, caller) in enumerate(first.items(), 1):
        print(f"{number:3} {file:32} from {caller}")
    for (caller, callee), function in ups.items():
        closure = "its closure" if "operator()" in function else function
        print(f"back: {caller} calls {callee}, {closure}")
    others = sum("operator()" not in function for function in ups.values())
    print(f"{len(first)} headers; {len(ups)} calls back up, {others} of them no closure's")
    return 0 if len(first) <= MOST_HEADERS and others == 0 else 1


if __name__ == "__main__":
    if "gdb" in sys.modules or "gdb" in globals():
        trace()
    else:
        sys.exit(main())
