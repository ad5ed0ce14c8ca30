# SPDX-License-Identifier: Apache-2.0
"""A small local version of what lathe's Conan recipe uses of Conan 2; see conan_create.py."""

import os
import subprocess
from types import SimpleNamespace


class Info(SimpleNamespace):
    cleared = False

    def clear(self):
        self.cleared = True


class CppInfo:
    """Folders and libraries of a package or of a component; components come into being when named."""

    def __init__(self):
        self.properties = {}
        self.includedirs, self.libdirs, self.bindirs = ["include"], ["lib"], ["bin"]
        self.libs, self.system_libs, self.requires, self.components = [], [], [], Components()

    def set_property(self, name, value):
        self.properties[name] = value


class Components(dict):
    def __missing__(self, name):
        self[name] = CppInfo()
        return self[name]


class Options(SimpleNamespace):
    def get_safe(self, name, default=None):
        return getattr(self, name, default)

    def rm_safe(self, name):
        vars(self).pop(name, None)


class ConanFile:
    options, default_options, cache_variables = {}, {}, {}
    exports, exports_sources, conan_data, package_type = (), (), None, None

    def __init__(self, recipe_folder, option_values, system="Linux"):
        self.recipe_folder = recipe_folder
        for name, value in option_values.items():
            assert value in self.options[name], (name, value)
        self.options = Options(**{**self.default_options, **option_values})
        self.settings = SimpleNamespace(os=system)
        self.info = Info(options=self.options)
        self.cpp_info = CppInfo()
        self.cpp = SimpleNamespace(source=CppInfo(), build=CppInfo(), package=CppInfo())
        self.requirements_seen, self.tools_seen = [], []

    # What the base class does where a recipe says nothing.
    def config_options(self):
        pass

    build_requirements = config_options

    def requires(self, reference, transitive_headers=False, transitive_libs=False):
        self.requirements_seen.append((reference, transitive_headers, transitive_libs))

    def tool_requires(self, reference):
        self.tools_seen.append(reference)

    def run(self, command, env):
        """In the environment of VirtualRunEnv, which has the folders of shared libraries."""
        assert env == "conanrun"
        subprocess.run([command], check=True, env={**os.environ, "LD_LIBRARY_PATH": self.library_path})
