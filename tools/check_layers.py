#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that a compiler does not: who may include whom and use whose names, that no headers
include each other in a circle, what may not be called where, licence lines, file lengths. Prints FILE:LINE: RULE for
each fault."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = "include/lathe/"

# Layer -> the layers whose headers it may include; "hwy" stands for Highway.
MAY_INCLUDE = {
    "base": {"base"},
    "op": {"base", "op"},
    "cache": {"base", "cache"},
    "cache-inl": {"base", "cache", "cache-inl", "arch", "simd", "hwy"},  # and what a target pass sees of a format
    "ref": {"base", "op", "cache", "ref"},
    "easy": {"base", "op"},
    "capi": {"base", "op", "cache", "capi"},
    "arch": {"base"},
    "simd": {"base", "arch", "simd", "hwy"},
    "kernel": {"base", "op", "cache", "cache-inl", "arch", "simd", "kernel", "hwy"},
    "dispatch": {"base", "op", "cache", "arch", "simd", "kernel", "dispatch", "hwy"},
    "host": {"base", "op", "cache", "arch", "kernel", "dispatch", "host", "hwy"},
    "entry": {"base", "op", "cache", "arch", "kernel", "dispatch", "host", "hwy"},
    "example": {"base", "op", "easy", "ref", "cache", "capi", "entry", "hwy"},
}
# Headers directly in include/lathe/ that are not operations.
ENTRY = {"impl.h": "entry", "static.h": "entry", "easy.h": "easy", "version.h": "base", "capi.h": "capi",
         "capi_impl.h": "capi"}

# The light layers stay light: includable anywhere in half a second, without an allocation.
HEAVY = r"(iostream|fstream|sstream|string|vector|map|unordered_map|functional|thread|mutex|future|regex)"
LIGHT = {"base", "op", "cache", "capi"}

FORBIDDEN = [  # layers, pattern over code without comments and strings, rule
    ({"base", "op", "cache", "cache-inl", "arch", "simd", "kernel", "dispatch", "host", "capi", "entry"}, r"\bthrow\b",
     "errors are Status, nothing throws"),
    ({"base", "op", "cache", "cache-inl", "arch", "simd", "kernel", "dispatch", "host", "capi", "entry"},
     r"\b(abort|exit|terminate|assert)\s*\(", "the library never ends the process"),
    ({"base", "op", "cache", "cache-inl", "simd", "kernel", "dispatch", "host", "capi", "entry"}, r"\b(secure_)?getenv\s*\(",
     "the environment is read by tests, benchmarks and examples only"),
    ({"base", "op", "cache", "cache-inl", "arch", "simd", "kernel", "dispatch", "host", "capi", "entry"},
     r"\bnew\s+[A-Za-z_:]|\b(malloc|calloc|realloc|aligned_alloc)\s*\(|\bstd::(vector|string)\b",
     "memory comes from the caller"),
    ({"op", "cache", "cache-inl", "arch", "simd", "kernel", "dispatch", "host", "capi", "entry"},
     r"\bstd::(thread|async)\b|#\s*pragma omp",
     "the library makes no thread"),
    ({"cache-inl", "simd", "kernel"}, r"\bExecutor\b|\bStatus\b", "kernels neither schedule nor validate"),
    ({"op", "base", "capi"}, r"\bHWY_\w+", "no Highway here"),
    (set(MAY_INCLUDE) - {"example"}, r"^using\s+namespace\b", "no using namespace in a header"),
    (set(MAY_INCLUDE) - {"example", "entry", "dispatch", "host", "kernel", "simd", "cache-inl"}, r"\bnamespace\s*\{",
     "no anonymous namespace in a header"),
]

MAX_LINES = 400
LONG = {HEADERS + "kernel/attend/attend-inl.h"}  # headers that may be longer; each is a debt

SPDX = "SPDX-License-Identifier: Apache-2.0"
SOURCE_DIRS = ("include", "src", "tests", "bench", "examples", "cmake", "tools", "packaging", ".ci")
SOURCE_NAMES = re.compile(r"(\.(h|c|cc|def|py|sh|cmake|cmake\.in)|CMakeLists\.txt|/run|^dev)$")


def layer_of(name):
    """The layer of a header named as in an #include, or None for a name that is not ours."""
    if name.startswith("hwy/"):
        return "hwy"
    if not name.startswith("lathe/"):
        return None
    folder, _, file = name[len("lathe/"):].rpartition("/")
    if folder == "cache" and file.endswith("-inl.h"):
        return "cache-inl"
    return folder.split("/")[0] if folder else ENTRY.get(file, "op")


def code_lines(text):
    """The lines of text with comments and the contents of strings blanked, includes kept."""
    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token[0] + " " * (len(token) - 2) + token[-1]

    includes = {i: line for i, line in enumerate(text.split("\n")) if re.match(r"\s*#\s*include", line)}
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)
    return [includes.get(i, line) for i, line in enumerate(code.split("\n"))]


def target_section(lines):
    """Numbers of the lines between #if... LATHE_TARGET_PASS and its #endif."""
    inside, depth, opened = set(), 0, None
    for i, line in enumerate(lines):
        if re.match(r"\s*#\s*if", line):
            depth += 1
            if opened is None and re.match(r"\s*#\s*if.*\bLATHE_TARGET_PASS\b", line):
                opened = depth
        elif re.match(r"\s*#\s*endif", line):
            if opened == depth:
                opened = None
            depth -= 1
        if opened is not None:
            inside.add(i)
    return inside


def included(lines):
    """(line number, name, "<" or '"') of each #include; those of a list (.def) whose rows the file expands into macros
    of its own are left out: any layer may do that, and it brings no more than the rows."""
    macros = set()
    for i, line in enumerate(lines):
        if macro := re.match(r"\s*#\s*(define|undef)\s+(LATHE_\w+)", line):
            (macros.add if macro.group(1) == "define" else macros.discard)(macro.group(2))
        if include := re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line):
            name = include.group(2)
            if name.endswith(".def"):
                rows = (ROOT / "include" / name).read_text(encoding="utf-8")
                if macros & set(re.findall(r"^(LATHE_\w+)\(", rows, re.MULTILINE)):
                    continue
            yield i, name, include.group(1)


DEFINITION = re.compile(
    r"#\s*define (?P<macro>LATHE_\w+)|"
    r"(?:template <.*> )?(?:struct|class|enum class) (?:\[\[\w+\]\] )?(?P<type>(?!alignas)\w+)(?!\w*;)|"
    r"using (?P<alias>\w+) =|"
    r"(?:inline |static )*constexpr [\w:<>,\* ]+?\b(?P<constant>k[A-Z]\w*)\b|"
    r"(?:LATHE_INLINE |inline |constexpr |static )*(?!return|using|namespace|template)[\w:<>,*& ]+?[ *&]"
    r"(?P<function>(?!HWY_|LATHE_)[A-Z]\w+)\(")


def defined(lines):
    """Names that a header defines at the scope of a namespace."""
    for line in lines:
        if (found := DEFINITION.match(line)) and not line.startswith(" "):
            yield found.group(found.lastgroup)


def layers_of_names():
    """Name -> the layers that define it."""
    layers = {}
    for path in (ROOT / HEADERS).rglob("*.h"):
        layer = layer_of(path.relative_to(ROOT / "include").as_posix())
        lines = code_lines(path.read_text(encoding="utf-8"))
        second = target_section(lines) if layer == "cache" else set()
        for name in defined(lines[i] for i in range(len(lines)) if i not in second):
            layers.setdefault(name, set()).add(layer)
        for name in defined(lines[i] for i in second):
            layers.setdefault(name, set()).add("cache-inl")
    return layers


def graph():
    """Header -> what it includes."""
    edges = {}
    for path in (ROOT / HEADERS).rglob("*"):
        if path.suffix in (".h", ".def"):
            name = path.relative_to(ROOT / "include").as_posix()
            edges[name] = [to for _, to, _ in included(code_lines(path.read_text(encoding="utf-8")))]
    return edges


def reached_formats(edges, header):
    """The code of cache formats that a header brings: a change of it would rebuild all who include the header."""
    seen, next_ones = set(), [header]
    while next_ones:
        name = next_ones.pop()
        if name not in seen:
            seen.add(name)
            next_ones += edges.get(name, ())
    return sorted(name for name in seen if name.startswith("lathe/cache/"))


def circles(edges):
    """Each circle of headers that include one another, as a list that ends where it begins."""
    done, way = set(), []

    def visit(name):
        if name in way:
            yield [*way[way.index(name):], name]
        elif name not in done:
            way.append(name)
            for to in edges.get(name, ()):
                yield from visit(to)
            way.pop()
            done.add(name)

    for name in sorted(edges):
        yield from visit(name)


# Macros by which dispatch/ tells a pass what to compile.
OF_PASSES = {"LATHE_TILE", "LATHE_TILE_TARGET"}


def check_names(lines, here, layers):
    """No name that only layers define which `here`, a line number's layer, may not include; names that the file
    declares anywhere, as parameters and locals, are its own."""
    code = "\n".join(lines)
    own = {*OF_PASSES, *defined(lines), *re.findall(r",\s+(\w+) =", code)}
    own.update(name for before, name in re.findall(r"([\w>&*.]+)\s+(\w+)\s*[=,>)({;\[]", code) if before != "return")
    for i, line in enumerate(lines):
        if re.match(r"\s*#", line):
            continue
        for name in re.findall(r"(?:(?<![\w.>:])|(?<=lathe::)|(?<=detail::))[A-Za-z_]\w+", line):
            if name in layers and name not in own and not layers[name] & MAY_INCLUDE[here(i)]:
                yield i, f"{here(i)} may not use {name} of {' and '.join(sorted(layers[name]))}"


def check_code(path, layer, text, layers):
    lines = code_lines(text)
    second = target_section(lines) if layer == "cache" else set()

    def here(i):
        return "cache-inl" if i in second else layer

    for i, name, mark in included(lines):
        of = layer_of(name)
        if of and of not in MAY_INCLUDE[here(i)]:
            yield i, f"{here(i)} may not include {of} ({name})"
        if not re.match("lathe/|hwy/", name) and mark == '"' and layer != "example":
            yield i, f'write "lathe/...", not a relative path ({name})'
        if here(i) in LIGHT and re.fullmatch(HEAVY, name):
            yield i, f"{here(i)} may not include <{name}>"
    if layer != "example" and path.endswith(".h"):
        yield from check_names(lines, here, layers)
    for i, line in enumerate(lines):
        if re.match(r"\s*#\s*include", line):
            continue
        for places, pattern, rule in FORBIDDEN:
            if here(i) in places and re.search(pattern, line):
                yield i, rule


def check(path, layers):
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.split("\n")
    if not any(SPDX in line for line in lines[:2]):
        yield 0, f"the first line says: {SPDX}"
    for i, line in enumerate(lines):
        if re.search(r"\b(TO" r"DO|FIX" r"ME)\b", line):
            yield i, "nothing is left for later in a comment"
    if path.startswith(HEADERS):
        if len(lines) - 1 > MAX_LINES and path not in LONG:
            yield len(lines) - 2, f"{len(lines) - 1} lines, the limit is {MAX_LINES}"
        layer = layer_of(path[len("include/"):])
        if layer is not None and layer not in MAY_INCLUDE:
            yield 0, f"unknown layer {layer}"
        elif layer is not None:
            yield from check_code(path, layer, text, layers)
    elif path.startswith("examples/") and path.endswith((".h", ".c", ".cc")):
        yield from check_code(path, "example", text, layers)


def main():
    files = ["dev"]
    for folder in SOURCE_DIRS:
        files += sorted(str(f.relative_to(ROOT)) for f in (ROOT / folder).rglob("*") if f.is_file())
    files = [f for f in files if SOURCE_NAMES.search(f)]
    faults = 0
    edges = graph()
    for header in ("lathe/lathe.h", "lathe/easy.h", "lathe/capi.h"):
        for name in reached_formats(edges, header):
            print(f"include/{header}:1: must not bring {name}")
            faults += 1
    for circle in circles(edges):
        print(f"{HEADERS}{circle[0][len('lathe/'):]}:1: a circle of includes, {' -> '.join(circle)}")
        faults += 1
    layers = layers_of_names()
    for path in files:
        for line, rule in check(path, layers):
            print(f"{path}:{line + 1}: {rule}")
            faults += 1
    print(f"{len(files)} files, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
