#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doc_snippets.py FOLDER FILE.md...

Writes each block of the files that begins with ```cpp complete into FOLDER, as a source file whose main() has
a name of its own, and a main.cc that runs them all. Prints the source files, one a line."""

import pathlib
import re
import sys

BLOCK = re.compile(r"^```cpp complete\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
