"""Where a command may write: what would fail at the end is said before the work."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from lessram.errors import FileFormatError, SpecError


def check_outputs(*outputs: Path | None) -> None:
    """Refuse names that no file can be written to."""
    for output in outputs:
        if output is None:
            continue
        folder = output.absolute().parent
        if output.is_dir() or not folder.is_dir():
            raise FileFormatError(f"{output}: cannot write: expected a file in a folder that exists")
        if is_device(output):
            raise FileFormatError(f"{output}: cannot write: found a device or a pipe, expected a file")
        if not os.access(folder, os.W_OK):
            raise FileFormatError(f"{output}: cannot write: no permission to write into {folder}")


def check_apart(outputs: Iterable[Path | None], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse to write over what is read: a slip of the hand must not cost anybody their data."""
    written = [output for output in outputs if output is not None and output.exists()]
    for source in inputs:
        for output in written:
            if os.path.exists(source) and os.path.samefile(source, output):
                raise SpecError(f"{output}: cannot write over what is read: choose another name")


def check_different(*outputs: Path | None) -> None:
    """Refuse one name for two outputs, of which only the last would remain."""
    written = [output for output in outputs if output is not None]
    for one, other in itertools.combinations(written, 2):
        if os.path.realpath(one) == os.path.realpath(other):
            raise SpecError(f"{other}: cannot write two files of one name: choose another")


def is_device(path: Path) -> bool:
    """Whether a name is that of something to write into, not of a file to replace: /dev/stdout, a named pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
