#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the C interface has all that lathe/lathe.h has: a function for each function, a struct for each
struct, a field for each field, a number for each cache format, by the rules of names below. Prints what C lacks."""

import pathlib
import re
import sys

HEADERS = pathlib.Path(__file__).resolve().parent.parent / "include/lathe"
STRUCT_HEADERS = sorted(HEADERS.glob("*.h")) + [HEADERS / "base" / name for name in (
    "keys.h", "plan.h", "rope.h", "row_transform.h", "lse.h", "target.h")]

# What C calls otherwise.
FUNCTIONS = {"Targets": "lathe_get_target"}
OF_PLANS = ("PlanTarget", "PlanWorkspaceBytes")  # one for each kind of plan
STRUCTS = {"BasicPagedCache": "lathe_paged_cache", "LatentWriteOptions": "lathe_cache_write_options",
           "IndexerWriteOptions": "lathe_cache_write_options", "TargetList": None}  # lathe_num_targets
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


def format_numbers():
    """Formats whose number differs between cache/formats.def and C, by C's name."""
    rows = re.findall(r"^LATHE_FORMAT\(k(\w+), (\d+),", (HEADERS / "cache/formats.def").read_text(encoding="utf-8"), re.M)
    cpp = {"LATHE_FORMAT_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper(): number for name, number in rows}
    c = dict(re.findall(r"(LATHE_FORMAT_\w+) = (\d+)", code(HEADERS / "capi/common.h")))
    return sorted(name for name in cpp.keys() | c.keys() if cpp.get(name) != c.get(name))


def main():
    lacks = list(lacking())
    for name in lacks:
        print(f"the C interface lacks {name}")
    differ = format_numbers()
    for name in differ:
        print(f"{name} is not in both of cache/formats.def and capi/common.h under one number")
    return 1 if lacks or differ else 0


if __name__ == "__main__":
    sys.exit(main())
