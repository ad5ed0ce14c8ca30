#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Applies small wrong changes to the code, one at a time, and shows that the tests notice each.

    tools/mutate.py [--build DIR] [--jobs N] [NAME...]      NAME: only these mutations; default: all

The list (tests/mutations.list) says what to change and which tests are expected to notice:

    [name] what the change stands for
    file: kernel/keys/visibility.h                   below include/lathe
    tests: [mla_decode][window]                 a Catch2 test specification
    - a line as it is
    + a line as it becomes                      any number of both; together they are one place

The - lines must occur exactly once in their file. The working tree is not touched: a changed file lies
in a folder of its own that is searched before include/, for the one unit that holds the code and for tests that
compile some of it themselves; the other tests are built once. A mutation is killed when a test of `tests` fails or crashes: on the baseline target, else
on all of this machine's, else when any other test does. `equivalent: why` marks a change that no result
shows, which is then expected to survive. Exit status 0 if every mutation does what the list says.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import re
import shlex
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CMAKE_ARGS = [
    "-GNinja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1", "-DLATHE_TEST_BUILDS=OFF",
    "-DLATHE_BUILD_BENCHMARKS=OFF", "-DLATHE_BUILD_EXAMPLES=OFF",
    f"-DCMAKE_PREFIX_PATH={ROOT / '.deps' / 'usr'}",
]
# Targets cost compile time, and most mistakes show on any.
FEW_TARGETS = "(~0LL)"
ALL_TARGETS = "HWY_AVX3"
ALL_TESTS = "~[.]"  # not hidden ones: some fail outside the surroundings that they are made for
TEST_SECONDS = 900


class Mutation:
    def __init__(self, name, title):
        self.name, self.title = name, title
        self.file, self.tests, self.equivalent = None, None, None
        self.old, self.new = [], []

    def apply(self):
        """Returns the changed text of the file."""
        text = (ROOT / "include" / "lathe" / self.file).read_text()
        old, new = ("".join(line + "\n" for line in lines) for lines in (self.old, self.new))
        if text.count(old) != 1:
            raise SystemExit(f"mutate: {self.name}: its lines occur {text.count(old)} times in {self.file}")
        return text.replace(old, new)


def read_list(path):
    mutations = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if header := re.match(r"\[(\w+)\] (.+)", line):
            mutations.append(Mutation(header[1], header[2]))
        elif line.startswith(("- ", "+ ")):
            (mutations[-1].old if line[0] == "-" else mutations[-1].new).append(line[2:])
        elif field := re.match(r"(file|tests|equivalent): (.+)", line):
            setattr(mutations[-1], field[1], field[2])
        elif line and not line.startswith("#"):
            raise SystemExit(f"mutate: {path.name}:{number}: not understood: {line}")
    return mutations


class Builder:
    """Compiles the units that hold kernels as CMake does and links them to the tests that CMake has built."""

    def __init__(self, build):
        self.build = build
        if not (build / "build.ninja").exists():
            subprocess.run(["cmake", "-S", ROOT, "-B", build, *CMAKE_ARGS], check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", build, "--target", "lathe_tests"], check=True,
                       stdout=subprocess.DEVNULL)
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "lathe_tests"], check=True,
                                  capture_output=True, text=True).stdout.splitlines()
        self.linking = self.command(commands, r" -o tests/lathe_tests ")
        dispatch = self.command(commands, r" -c \S*src/lathe_dispatch\.cc")
        self.units = [("liblathe_dispatch.a", dispatch)]  # what the program links, and how it is compiled
        passes = [path for path in (ROOT / "tests").rglob("*.cc") if "lathe/simd/end_pass.h" in path.read_text()]
        for path in passes:
            name = path.relative_to(ROOT / "tests").as_posix()
            for linked in self.linking:
                if linked.endswith(f"/{name}.o"):
                    self.units.append((linked, self.command(commands, f" -o {re.escape(linked)} ")))

    @staticmethod
    def command(commands, part):
        line = next(line for line in reversed(commands) if re.search(part, line))
        return shlex.split(re.sub(r"^: && | && :$", "", line))

    def reads(self, linked, file):
        """Whether that object of tests depends on a header of include/lathe."""
        deps = subprocess.run(["ninja", "-C", self.build, "-t", "deps", linked], capture_output=True, text=True).stdout
        return any(line.endswith(f"include/lathe/{file}") for line in deps.splitlines())

    def run(self, mutation, disabled):
        """Returns the program of tests, or what the compiler says against it."""
        folder = self.build / "mutations" / mutation.name
        changed = folder / "include" / "lathe" / mutation.file
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(mutation.apply())
        program = folder / "tests"
        objects, commands = {}, []
        for linked, compiling in self.units:
            if linked.endswith(".o") and not self.reads(linked, mutation.file):
                continue
            objects[linked] = folder / f"{len(objects)}.o"
            compiling = [arg for arg in compiling if not arg.startswith("-DLATHE_DISABLED_TARGETS")]
            compiling[1:1] = ["-I", folder / "include", f"-DLATHE_DISABLED_TARGETS={disabled}", "-w"]
            compiling[compiling.index("-o") + 1] = objects[linked]
            commands.append(compiling)
        linking = [objects.get(arg, arg) for arg in self.linking]
        linking[linking.index("-o") + 1] = program
        for command in *commands, linking:
            done = subprocess.run(command, cwd=self.build, capture_output=True, text=True)
            if done.returncode != 0:
                return None, done.stderr[:2000]
        return program, None


def run_tests(program, spec):
    """Returns what noticed the change, or None."""
    # Long contexts prove no more here, and take longest.
    spec = ",".join("~[long] " + part for part in spec.split(","))
    try:
        done = subprocess.run([program, spec, "--abort", "--order", "decl"], capture_output=True,
                              text=True, errors="replace", timeout=TEST_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no end after {TEST_SECONDS} s"
    if "No test cases matched" in done.stdout + done.stderr:
        raise SystemExit(f"mutate: no test matches {spec}")
    if done.returncode in (0, 4):  # 4: all skipped
        return None
    # The name stands between two rules of dashes, above what failed.
    names = re.findall(r"^-{20,}\n(.+)\n(?:  .+\n)*-{20,}$", done.stdout.split("FAILED:")[0], re.M)
    what = f", signal {-done.returncode}" if done.returncode < 0 else ""
    return (names[-1] if names else spec) + what


def try_mutation(builder, mutation):
    """Returns (verdict, detail)."""
    for disabled, spec in ((FEW_TARGETS, mutation.tests), (ALL_TARGETS, mutation.tests),
                           (ALL_TARGETS, ALL_TESTS)):
        if spec != ALL_TESTS:
            program, errors = builder.run(mutation, disabled)
            if program is None:
                return "not compiled", errors
        if noticed := run_tests(program, spec):
            return "killed", noticed
    return "survived", mutation.equivalent or ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", type=pathlib.Path, default=ROOT / "tests" / "mutations.list")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutate",
                        help="where the tests are built")
    parser.add_argument("--jobs", type=int, default=1, help="mutations tried side by side")
    parser.add_argument("--check", action="store_true", help="only see whether all still apply")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    mutations = read_list(args.list)
    if unknown := set(args.names) - {m.name for m in mutations}:
        raise SystemExit(f"mutate: there is no {', '.join(sorted(unknown))}")
    mutations = [m for m in mutations if not args.names or m.name in args.names]
    for mutation in mutations:
        mutation.apply()
    if args.check:
        print(f"{len(mutations)} mutations apply")
        return
    builder = Builder(args.build.resolve())

    def attempt(mutation):
        began = time.monotonic()
        verdict, detail = try_mutation(builder, mutation)
        print(f"{verdict} {mutation.name}: {mutation.title} [{detail}] {time.monotonic() - began:.0f} s",
              flush=True)
        return mutation, verdict

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(attempt, mutations))
    counts = collections.Counter(verdict for _, verdict in results)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    wrong = [m.name for m, verdict in results if verdict != ("survived" if m.equivalent else "killed")]
    if wrong:
        raise SystemExit(f"mutate: not as the list says: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
