# SPDX-License-Identifier: Apache-2.0
"""A small local version of what lathe's Conan recipe uses of Conan 2; see conan_create.py."""

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

    def __init__(self, recipe_folder, option_values):
        self.recipe_folder = recipe_folder
        for name, value in option_values.items():
            assert value in self.options[name], (name, value)
        self.options = Options(**{**self.default_options, **option_values})
        self.info = Info(options=self.options)
        self.cpp_info = CppInfo()
        self.requirements_seen = []

    def requires(self, reference, transitive_headers=False, transitive_libs=False):
        self.requirements_seen.append((reference, transitive_headers, transitive_libs))

    @staticmethod
    def run(command, env):
        assert env == "conanrun"
        subprocess.run([command], check=True)
