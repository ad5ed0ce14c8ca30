#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the C interface has all that lathe/lathe.h has: a function for each function, a struct for each
struct, a field for each field, an enumerator of the same number for each enumerator, by the rules of names below; and
that tests/capi/mirror.h sets every field of the structs that it makes. Prints what C lacks."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include/lathe"
STRUCT_HEADERS = sorted(HEADERS.glob("*.h")) + [HEADERS / "base" / name for name in (
    "keys.h", "plan.h", "rope.h", "row_transform.h", "lse.h", "target.h")]

# What C calls otherwise.
FUNCTIONS = {"Targets": "lathe_get_target"}
OF_PLANS = ("PlanTarget", "PlanWorkspaceBytes")  # one for each kind of plan
STRUCTS = {"BasicPagedCache": "lathe_paged_cache", "TargetList": None}  # lathe_num_targets
ENUMS = {"StatusCode": "status", "CacheFormat": "format", "DType": "dtype"}
# Enumerators that C alone has: types of tensors that C++ knows by other views.
C_ENUMERATORS = {f"LATHE_DTYPE_{name}" for name in ("INT32", "INT64", "UINT8", "UINT64")}
FIELDS = {"causal": "no_causal", "check_indices": "no_check_indices", "interleaved": "is_neox_style"}


def code(path):
    """The text without comments and preprocessor lines: both sides expand the same lists."""
    return re.sub(r"//[^\n]*|^\s*#[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def in_c(name):
    return "lathe_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def fields(body):
    """Names of the fields; functions have parentheses."""
    for declaration in body.split(";"):
        match = re.search(r"(\w+)\s*(\[\w+\])?\s*(=.*)?$", declaration.strip(), re.DOTALL)
        if match and "(" not in declaration.split("=")[0]:
            yield match.group(1)


def enumerators(body):
    """Pairs of name and number, which counts on where it is not given."""
    number = -1
    for name, given in re.findall(r"(\w+)(?:\s*=\s*(\d+))?\s*(?:,|$)", body.strip()):
        number = int(given) if given else number + 1
        yield name, number


def enumerators_in_c():
    """By the C enum's name: of what C++ has, its lists included."""
    lists = {"CacheFormat": (HEADERS / "cache/formats.def", r"^LATHE_FORMAT\((k\w+), (\d+),"),
             "Target": (HEADERS / "base/targets.def", r"^LATHE_(?:TILE_)?TARGET(?:_ROW)?\((k\w+), (\d+),")}
    for path in [*STRUCT_HEADERS, *sorted((HEADERS / "base").glob("*.h"))]:
        for enum, body in re.findall(r"^enum class (\w+) : uint8_t \{(.*?)\};", code(path), re.MULTILINE | re.DOTALL):
            found = list(enumerators(body))
            if enum in lists:
                file, row = lists[enum]
                found += [(name, int(number)) for name, number in re.findall(row, file.read_text(), re.MULTILINE)]
            c_enum = ENUMS.get(enum, in_c(enum)[len("lathe_"):].removesuffix("_kind"))
            for name, number in found:
                words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[1:]).upper()
                yield f"LATHE_{c_enum.upper()}_{words}", number


def lacking_numbers(c):
    c_numbers = {}
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", c, re.DOTALL):
        c_numbers.update(enumerators(body))
    numbers = dict(enumerators_in_c())
    for name in sorted(set(numbers) | set(c_numbers) - C_ENUMERATORS):
        if c_numbers.get(name) != numbers.get(name):
            yield f"{name}, which is {c_numbers.get(name)} in C and {numbers.get(name)} in C++"


def lacking_in_mirror(c_structs):
    mirror = code(ROOT / "tests/capi/mirror.h")
    for match in re.finditer(r"(\w+) = Sized<(\w+)>\(\)", mirror):
        variable, struct = match.groups()
        block = mirror[match.end():mirror.index("\n}", match.end())]
        for field in sorted(c_structs[struct] - {"struct_size"}):
            if not re.search(rf"\b{variable}\.{field} = ", block):
                yield f"{struct}.{field} in tests/capi/mirror.h"


def lacking():
    c = "".join(code(path) for path in sorted((HEADERS / "capi").glob("*.h")))
    c_functions = set(re.findall(r"LATHE_C_API \w+ (\w+)\(", c))
    c_structs = {name: set(fields(body)) for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", c, re.DOTALL)}

    names = []
    declarations = "".join(code(path) for path in STRUCT_HEADERS)
    for name, plan in re.findall(r"LATHE_API \w+ (\w+)\((?:const (\w+)Plan& plan\))?", declarations):
        names.append(plan + name if name in OF_PLANS else name)
    names += re.findall(r"^LATHE_INLINE[^;{]*?(\w+)\(", code(HEADERS / "v4_metadata.h"), re.MULTILINE)
    for name in names:
        if FUNCTIONS.get(name, in_c(name)) not in c_functions:
            yield name
    for path in STRUCT_HEADERS:
        for name, body in re.findall(r"^struct (\w+) \{(.*?)^\};", code(path), re.MULTILINE | re.DOTALL):
            struct = STRUCTS.get(name, in_c(name))
            if struct is None:
                continue
            if struct not in c_structs:
                yield name
                continue
            for field in fields(body):
                if FIELDS.get(field, field) not in c_structs[struct]:
                    yield f"{name}::{field}"
    yield from lacking_numbers(c)
    yield from lacking_in_mirror(c_structs)


def main():
    lacks = list(lacking())
    for name in lacks:
        print(f"the C interface lacks {name}")
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
