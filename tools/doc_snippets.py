#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doc_snippets.py FOLDER FILE.md...

Writes each block of the files that begins with ```cpp complete into FOLDER, as a source file whose main() has
a name of its own, and a main.cc that runs them all. Prints the source files, one a line. A block that begins
with ```cpp lines shows some lines of a complete block of the same file, in their order."""

import pathlib
import re
import sys

BLOCK = re.compile(r"^```cpp complete\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES = re.compile(r"^```cpp lines\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def require_lines(file, text):
    programs = [[line.strip() for line in match.group(1).split("\n")] for match in BLOCK.finditer(text)]
    for match in LINES.finditer(text):
        lines = [line.strip() for line in match.group(1).strip().split("\n")]
        if not any(is_part(lines, program) for program in programs):
            sys.exit(f"{file}: these lines are in no complete program of the file:\n{match.group(1)}")


def is_part(lines, program):
    rest = iter(program)
    return all(line in rest for line in lines)


def write(path, text):
    """Leaves a file that is right alone, so that nothing is compiled twice."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    print(path.as_posix())


def main(folder, *files):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for file in map(pathlib.Path, files):
        text = file.read_text(encoding="utf-8")
        require_lines(file, text)
        for match in BLOCK.finditer(text):
            name = f"Snippet{len(names)}_{re.sub('[^A-Za-z0-9]', '_', file.stem)}"
            line = text.count("\n", 0, match.start(1)) + 1
            names.append(name)
            write(folder / f"{name}.cc",
                  f'#define main {name}\nint main();\n#line {line} "{file.as_posix()}"\n{match.group(1)}')
    declarations = "".join(f"int {name}();\n" for name in names)
    calls = "".join(f'  failed += Run("{name}", {name});\n' for name in names)
    write(folder / "main.cc", f"""#include <cstdio>

{declarations}
static int Run(const char* name, int (*snippet)()) {{
  std::printf("-- %s\\n", name);
  std::fflush(stdout);
  const int result = snippet();
  if (result != 0) std::printf("FAILED: %s returns %d\\n", name, result);
  return result != 0;
}}

int main() {{
  int failed = 0;
{calls}  return failed;
}}
""")


if __name__ == "__main__":
    main(*sys.argv[1:])
