"""Files that are being written: under names of their own, beside those that they will have.

Such a name says who writes, so that what a killed process left behind can be told from what another is writing at this
moment: `.NAME.HOST.PROCESS.RANDOM.partial`, where HOST is a digest of what a process id is unique within.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import secrets
from pathlib import Path


def unfinished(path: Path) -> Path:
    """A new name to write under what will be renamed to `path`.

    Whatever processes that no longer exist were writing to this very path goes away.
    """
    if os.name == "posix":  # elsewhere, to ask for a process may end it
        _remove_leftovers(path)
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}.partial")


def _remove_leftovers(path: Path) -> None:
    """Only those of this host, whose processes are known. What cannot be looked at or removed stays."""
    left = re.compile(rf"\.{re.escape(path.name)}\.{_host()}\.([0-9]{{1,9}})\.[0-9a-f]{{8}}\.partial")
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            if (found := left.fullmatch(name)) and not _exists(int(found[1])):
                path.with_name(name).unlink(missing_ok=True)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    return True


@functools.cache
def _host() -> str:
    """Processes with the same one see each other: those of one machine, or of one container on it.

    A folder may be shared by several machines, and hosts may have the same name, so a machine's own number counts too.
    """
    known = [platform.node()]
    with contextlib.suppress(OSError):
        known.append(Path("/etc/machine-id").read_text(errors="replace"))
    with contextlib.suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]
