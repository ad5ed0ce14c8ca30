# SPDX-License-Identifier: Apache-2.0
import hashlib
import pathlib
import shutil
import tarfile


def load(conanfile, path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def get(conanfile, url, sha256, strip_root):
    """The file that the test has in the place of the one at the address."""
    assert url == conanfile.archive_url and strip_root
    content = pathlib.Path(conanfile.archive).read_bytes()
    assert hashlib.sha256(content).hexdigest() == sha256, "conandata.yml has another hash"
    with tarfile.open(conanfile.archive) as archive:
        for member in archive.getmembers():
            member.name = member.name.partition("/")[2]
            archive.extract(member, conanfile.source_folder)


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
