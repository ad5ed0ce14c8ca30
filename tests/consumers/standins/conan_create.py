#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""conan_create.py RECIPE_FOLDER WORK OPTION=VALUE,... VERSION [--archive FILE] [--library-path FOLDER] CMAKE_ARGUMENTS...

Carries out RECIPE_FOLDER/conanfile.py and its test_package in the order of `conan create`, with the stand-in for
Conan's modules that lies beside this file: exported files only, real CMake runs, and a package file written
from package_info, as CMakeDeps does it. With --archive that file is what the recipe's source() gets. os=Windows
among the options is a setting."""

import argparse
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import conan  # noqa: E402  the stand-in


def load_recipe(path):
    """The one class that the file itself defines."""
    spec = importlib.util.spec_from_file_location("recipe_" + re.sub(r"\W", "_", str(path)), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values() if isinstance(value, type)
             and issubclass(value, conan.ConanFile) and value.__module__ == module.__name__]
    assert len(found) == 1, f"{path} defines {len(found)} recipes"
    return found[0]


def export(tree, patterns, to):
    """Only these files are there when the recipe is loaded or built."""
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        found = [tree / pattern] if "*" not in pattern else list((tree / pattern[:-2]).rglob("*"))
        files = [p for p in found if p.is_file()]
        assert files, f"exports: nothing matches {pattern}"
        for path in files:
            target = to / path.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def conan_data(file):
    """conandata.yml, as far as it goes: sources of one version."""
    text = file.read_text(encoding="utf-8")
    version = re.search(r'^  "([^"]+)":$', text, re.MULTILINE)[1]
    return {"sources": {version: dict(re.findall(r'^    (\w+): "([^"]+)"$', text, re.MULTILINE))}}


def files_below(folder):
    return sorted(p.relative_to(folder) for p in pathlib.Path(folder).rglob("*") if p.is_file())


def write_package_file(recipe, folder):
    """lathe-config.cmake with an imported target for each component, and one for all of them."""
    lines = ["find_package(hwy 1.2 CONFIG REQUIRED)",
             "if(NOT TARGET highway::hwy)", "  add_library(highway::hwy ALIAS hwy::hwy)", "endif()"]
    targets = {name: c.properties["cmake_target_name"] for name, c in recipe.cpp_info.components.items()}
    whole = recipe.cpp_info.properties["cmake_target_name"]
    # What a shared library was linked with is no matter of those that link it.
    is_shared = recipe.options.get_safe("shared")
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
    # CMake stops where this one has the name of a component.
    lines += [f"add_library({whole} INTERFACE IMPORTED)",
              f'set_target_properties({whole} PROPERTIES INTERFACE_LINK_LIBRARIES "{";".join(targets.values())}")']
    file = folder / (recipe.cpp_info.properties["cmake_file_name"] + "-config.cmake")
    folder.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check_package(package, recipe):
    assert (package / "licenses" / "LICENSE").is_file() and (package / "include" / "lathe" / "lathe.h").is_file()
    assert not list(package.rglob("*.cmake")) and not list(package.rglob("*.pc")), "Conan writes its own"
    assert not list(package.rglob("libhwy*")), "Highway is a package of its own"
    libraries = [path for path in package.rglob("liblathe*") if not path.is_symlink()]
    found = sorted(path.name for path in libraries)
    if recipe.options.header_only:
        assert not found
    elif recipe.options.get_safe("shared"):
        assert len(found) == 1 and found[0].startswith("liblathe_c.so"), found
        dynamic = subprocess.run(["readelf", "-d", libraries[0]], check=True, capture_output=True, text=True).stdout
        assert "PATH" not in dynamic, "the library looks where it was built:\n" + dynamic
    else:
        has_c = recipe.options.get_safe("enable_c_library")
        assert found == (["liblathe_c.a"] if has_c else []) + ["liblathe_dispatch.a"], found


def check_editable(recipe, tree):
    """The folders of the tree and of its build in which editable mode looks."""
    for name, component in recipe.cpp_info.components.items():
        source, build = recipe.cpp.source.components[name], recipe.cpp.build.components[name]
        assert all((tree / folder / "lathe").is_dir() for folder in source.includedirs)
        for library in component.libs:
            places = [pathlib.Path(recipe.build_folder, folder) for folder in build.libdirs]
            assert any(list(place.glob(f"lib{library}.*")) for place in places), f"{library} is not in {places}"
    known = set(recipe.cpp_info.components)
    assert set(recipe.cpp.source.components) | set(recipe.cpp.build.components) == known


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe_folder", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("options")
    parser.add_argument("version")
    parser.add_argument("--archive")
    parser.add_argument("--library-path", default="")
    arguments, cmake_arguments = parser.parse_known_args()
    work, folder = arguments.work, arguments.recipe_folder
    given = dict(o.split("=") for o in arguments.options.split(",") if o)
    system = given.pop("os", "Linux")
    options = {name: value == "True" for name, value in given.items()}
    shutil.rmtree(work, ignore_errors=True)

    recipe_class = load_recipe(folder / "conanfile.py")
    export(folder, ["conanfile.py", *([recipe_class.exports] if recipe_class.exports else [])], work / "export")
    recipe = load_recipe(work / "export" / "conanfile.py")(str(folder), options, system)
    recipe.cmake_arguments = cmake_arguments
    if arguments.archive:
        recipe.conan_data = conan_data(folder / "conandata.yml")
        recipe.version, recipe.archive = list(recipe.conan_data["sources"])[0], arguments.archive
        recipe.archive_url = f"{recipe.homepage}/archive/refs/tags/v{arguments.version}.tar.gz"
        assert f'"{recipe.version}"' in (folder.parent / "config.yml").read_text(encoding="utf-8")
    else:
        recipe.set_version()
    assert recipe.version == arguments.version, f"the recipe says {recipe.version}, lathe/version.h {arguments.version}"
    recipe.config_options()
    assert ("fPIC" in vars(recipe.options)) == (system != "Windows")
    recipe.configure()
    header_only, is_shared = recipe.options.header_only, bool(recipe.options.get_safe("shared"))
    has_fpic = system != "Windows" and not header_only and not is_shared
    for name, is_there in (("enable_c_library", not header_only), ("fPIC", has_fpic),
                           ("shared", not header_only and bool(options.get("enable_c_library")))):
        assert (name in vars(recipe.options)) == is_there, f"the option {name}"
    # Conan takes the kind from the options where the recipe leaves it open.
    if not header_only and recipe.package_type == "library":
        assert "shared" in vars(recipe.options), "Package type is 'library', but no 'shared' option declared"
    recipe.requirements()
    assert [r[0].split("/")[0] for r in recipe.requirements_seen] == ["highway"]
    assert all(r[1:] == (not is_shared, not is_shared) for r in recipe.requirements_seen), \
        "consumers compile and link Highway, but for those of a shared library"
    recipe.build_requirements()
    assert bool(arguments.archive) == any(tool.startswith("cmake/") for tool in recipe.tools_seen)
    recipe.package_id()
    assert recipe.info.cleared == header_only, "one package of headers for every setting"
    recipe.validate()

    (work / "source").mkdir()
    recipe.source_folder, recipe.build_folder = str(work / "source"), str(work / "build")
    recipe.package_folder, recipe.library_path = str(work / "package"), arguments.library_path
    if recipe.exports_sources:
        export(folder, recipe.exports_sources, work / "source")
    recipe.layout()
    recipe.source()
    sources = files_below(work / "source")
    recipe.generate()
    recipe.build()
    recipe.package()
    assert files_below(work / "source") == sources, "files were left among the sources"
    recipe.package_info()
    check_package(work / "package", recipe)
    check_editable(recipe, work / "source")

    write_package_file(recipe, work / "deps")
    # The test package is all that there is of the tree.
    shutil.copytree(folder / "test_package", work / "test_package", ignore=shutil.ignore_patterns("build"))
    test = load_recipe(work / "test_package" / "conanfile.py")(str(work / "test_package"), {})
    assert not hasattr(test, "test_type"), "that is of Conan 1"
    test.tested_reference_str = f"{recipe.name}/{recipe.version}"
    test.dependencies = {test.tested_reference_str: recipe}
    test.requirements()
    assert [r[0] for r in test.requirements_seen] == [test.tested_reference_str]
    test.layout()
    test.source_folder, test.build_folder = str(work / "test_package"), str(work / "test")
    test.cpp.build.bindir = test.build_folder
    # Conan's Highway is static unless it is asked for a shared one, and then in a folder that linkers are told of.
    link_path = f"-Wl,-rpath-link,{arguments.library_path}" if arguments.library_path else ""
    test.cmake_arguments = [*cmake_arguments, f"-DCMAKE_PREFIX_PATH={work / 'deps'}",
                            f"-DCMAKE_EXE_LINKER_FLAGS={link_path}"]
    package_library = str(work / "package" / "lib")
    test.library_path = ":".join(p for p in (package_library, arguments.library_path) if p)
    test.build()
    test.test()
    return 0


if __name__ == "__main__":
    sys.exit(main())
