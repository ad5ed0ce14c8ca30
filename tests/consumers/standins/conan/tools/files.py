# SPDX-License-Identifier: Apache-2.0
import pathlib
import shutil


def load(conanfile, path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def copy(conanfile, pattern, src, dst):
    found = list(pathlib.Path(src).glob(pattern))
    assert found, f"nothing matches {pattern}"
    pathlib.Path(dst).mkdir(parents=True, exist_ok=True)
    for path in found:
        shutil.copy(path, dst)


def rm(conanfile, pattern, folder):
    found = list(pathlib.Path(folder).glob(pattern))
    assert found, f"nothing matches {pattern}"
    for path in found:
        path.unlink()


def rmdir(conanfile, path):
    shutil.rmtree(path, ignore_errors=True)
