# SPDX-License-Identifier: Apache-2.0
"""The recipe for this tree: that of a registry, with the files that lie here in the place of an archive."""

import importlib.util
import os
import re

from conan.tools.files import load

_RECIPE = os.path.join("packaging", "registry", "conan", "all", "conanfile.py")
_spec = importlib.util.spec_from_file_location("lathe_registry_recipe",
                                               os.path.join(os.path.dirname(os.path.abspath(__file__)), _RECIPE))
_registry = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_registry)

required_conan_version = _registry.required_conan_version


class LatheTreeConan(_registry.LatheConan):
    url = homepage = None
    exports = _RECIPE
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "lathe", "version.h"))
        self.version = ".".join(re.findall(r"^#define LATHE_VERSION_[A-Z]+ ([0-9]+)$", text, re.MULTILINE))

    def build_requirements(self):
        """The CMake that is there: one need not build another to try the tree."""

    def source(self):
        """exports_sources has brought it."""
