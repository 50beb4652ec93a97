"""Files on other machines, by URL, through fsspec: `s3://`, `gs://`, `https://` and whatever else it knows.

fsspec is optional and imported when the first URL is met.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lessram.errors import DataError, LessramError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp"} | {
    "abfs": "adlfs",
    "az": "adlfs",
    "hdfs": "pyarrow",
    "sftp": "paramiko",
}
_TELLING = ("ETag", "etag", "checksum", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "updated")
"""What filesystems say that changes with a file; and `created` where a file is replaced, never changed."""


def is_url(path: str) -> bool:
    """Whether a source is on another machine.

    >>> is_url("s3://logs/day.svm.gz"), is_url("day.svm"), is_url("C:/day.svm")
    (True, False, False)
    """
    return _URL.match(path) is not None


def expand_url(url: str) -> list[str]:
    """The files that a URL, a glob of URLs or a folder stands for, in sorted order."""
    with _blaming(url):
        system, path = _open_system(url)
        if "*" in path or "[" in path:
            found = sorted(name for name in system.glob(path) if not system.isdir(name))
            if not found:
                raise DataError("found no file that matches, expected at least one", place=url)
        elif not url.startswith("http") and system.isdir(path):  # every page of the web may look like a folder
            found = sorted(name for name in system.find(path) if not _hidden(name[len(path) :]))
            if not found:
                raise DataError("found an empty directory, expected files in it", place=url)
        else:
            return [url]
        return [system.unstrip_protocol(name) for name in found]


def describe_url(url: str) -> tuple[int, int]:
    """The size of a file (-1 where there is no telling) and a number that changes with it, if its filesystem says."""
    with _blaming(url):
        system, path = _open_system(url)
        about = system.info(path)
        size = about.get("size")
        said = [f"{name}={about[name]}" for name in (*_TELLING, "created") if about.get(name)]
        digest = hashlib.sha256("\n".join(said).encode()).digest()
        return -1 if size is None else int(size), int.from_bytes(digest[:7], "little") if said else 0


def open_url(url: str) -> Any:
    """A binary file to read from."""
    with _blaming(url):
        system, path = _open_system(url)
        file = system.open(path, "rb")
        # A server that cannot begin in the middle is read like a pipe.
        return file if getattr(file, "size", 0) is not None else _Forward(file)


class _Forward(io.RawIOBase):
    """A file that only goes forward."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        data = self._file.read(len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_system(url: str) -> tuple[Any, str]:
    scheme = url.split(":", 1)[0].lower()
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        package = _PACKAGES.get(scheme)
        needed = f"fsspec {package}" if package else f"fsspec and the package for {scheme}://"
        raise LessramError(f"{url}: reading {scheme}:// needs fsspec: pip install {needed}") from None
    try:
        return url_to_fs(url)
    except ImportError as error:
        package = _PACKAGES.get(scheme, f"the package for {scheme}://")
        raise LessramError(f"{url}: reading {scheme}:// needs more: pip install {package} ({error})") from None


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


@contextmanager
def _blaming(url: str) -> Iterator[None]:
    """Whatever goes wrong on the way to another machine is an error of that source."""
    try:
        yield
    except LessramError:
        raise
    except FileNotFoundError:
        raise DataError("cannot read: No such file or directory", place=url) from None
    except Exception as error:  # each filesystem has exceptions of its own
        text = str(error).strip() or type(error).__name__
        raise DataError(f"cannot read: {text.splitlines()[0]}", place=url) from None
