#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""conan_create.py TREE WORK OPTION=VALUE,... VERSION CMAKE_ARGUMENTS...

Carries out TREE/conanfile.py and its test_package in the order of `conan create`, with the stand-in for
Conan's modules that lies beside this file: exported files only, real CMake runs, and a package file written
from package_info, as CMakeDeps does it."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
from types import SimpleNamespace

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def load_recipe(path, name):
    spec = importlib.util.spec_from_file_location("recipe_" + name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def export(tree, patterns, to):
    """Only these files are there when the recipe builds."""
    for pattern in patterns:
        found = [tree / pattern] if "*" not in pattern else [p for p in (tree / pattern[:-2]).rglob("*")]
        files = [p for p in found if p.is_file()]
        assert files, f"exports_sources: nothing matches {pattern}"
        for path in files:
            target = to / path.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def write_package_file(recipe, folder):
    """lathe-config.cmake with an imported target for each component."""
    lines = ["find_package(hwy 1.2 CONFIG REQUIRED)",
             "if(NOT TARGET highway::hwy)", "  add_library(highway::hwy ALIAS hwy::hwy)", "endif()"]
    targets = {name: c.properties["cmake_target_name"] for name, c in recipe.cpp_info.components.items()}
    # What a shared library was linked with is no matter of those that link it.
    is_shared = getattr(recipe.options, "shared", False)
    suffix = "so" if is_shared else "a"
    for name, component in recipe.cpp_info.components.items():
        libs = [f"{recipe.package_folder}/{component.libdirs[0]}/lib{lib}.{suffix}" for lib in component.libs]
        libs += [r if "::" in r else targets[r] for r in component.requires if not (is_shared and "::" in r)]
        libs += component.system_libs
        includes = [f"{recipe.package_folder}/{d}" for d in component.includedirs]
        lines += [f"add_library({targets[name]} INTERFACE IMPORTED)",
                  f"set_target_properties({targets[name]} PROPERTIES",
                  f'  INTERFACE_INCLUDE_DIRECTORIES "{";".join(includes)}"',
                  f'  INTERFACE_LINK_LIBRARIES "{";".join(libs)}")']
    file = folder / (recipe.cpp_info.properties["cmake_file_name"] + "-config.cmake")
    folder.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check_package(package, options):
    assert (package / "licenses" / "LICENSE").is_file() and (package / "include" / "lathe" / "lathe.h").is_file()
    assert not list(package.rglob("*.cmake")) and not list(package.rglob("*.pc")), "Conan writes its own"
    found = sorted(path.name for path in package.rglob("liblathe*") if not path.is_symlink())
    if "header_only" in options:
        assert not found
    elif "shared" in options:
        assert len(found) == 1 and found[0].startswith("liblathe_c.so"), found
    else:
        assert found == (["liblathe_c.a"] if "c_library" in options else []) + ["liblathe_dispatch.a"], found


def main(tree, work, options, version, *cmake_arguments):
    tree, work = pathlib.Path(tree), pathlib.Path(work)
    options = {name: value == "True" for name, value in (o.split("=") for o in options.split(",") if o)}
    header_only, is_shared = options.get("header_only", False), options.get("shared", False)
    shutil.rmtree(work, ignore_errors=True)
    recipe = load_recipe(tree / "conanfile.py", "LatheConan")(str(tree), options)
    recipe.set_version()
    assert recipe.version == version, f"the recipe says {recipe.version}, lathe/version.h {version}"
    recipe.configure()
    recipe.requirements()
    assert [r[0].split("/")[0] for r in recipe.requirements_seen] == ["highway"]
    assert all(r[1:] == (not is_shared, not is_shared) for r in recipe.requirements_seen), \
        "consumers compile and link Highway, but for those of a shared library"
    recipe.package_id()
    assert recipe.info.cleared == header_only, "one package of headers for every setting"
    recipe.validate()

    export(tree, recipe.exports_sources, work / "source")
    recipe.layout()
    recipe.source_folder, recipe.build_folder = str(work / "source"), str(work / "build")
    recipe.package_folder, recipe.cmake_arguments = str(work / "package"), cmake_arguments
    recipe.generate()
    recipe.build()
    recipe.package()
    recipe.package_info()
    check_package(work / "package", options)

    write_package_file(recipe, work / "deps")
    test = load_recipe(tree / "test_package" / "conanfile.py", "LatheTestConan")(str(tree / "test_package"), {})
    test.tested_reference_str = f"{recipe.name}/{recipe.version}"
    test.requirements()
    assert [r[0] for r in test.requirements_seen] == [test.tested_reference_str]
    test.layout()
    test.source_folder, test.build_folder = str(tree / "test_package"), str(work / "test")
    test.cpp = SimpleNamespace(build=SimpleNamespace(bindir=test.build_folder))
    test.cmake_arguments = [*cmake_arguments, f"-DCMAKE_PREFIX_PATH={work / 'deps'}"]
    test.build()
    test.test()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
