"""Watches the model's file and puts a new model into place between two requests.

A file that is replaced by a rename, as lessram itself writes, is another inode: the old model stays mapped and answers
the requests that hold it, and is unmapped with the last of them. The new one is checked and opened in a thread, and
takes over by one assignment. One that is damaged is refused, once, and the old model stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lessram.errors import LessramError
from lessram.serving.server.loaded import Loaded, Opener, Signature, load

log = logging.getLogger("lessram.serve")


class Keeper:
    """Keeps the model that is being served up to date with its file."""

    def __init__(
        self, first: Loaded, path: str, opener: Opener, *, verify: bool = True, on_reload: Callable[[str, int], None]
    ) -> None:
        self._path, self._opener, self._verify, self._on_reload = path, opener, verify, on_reload
        self.current = first
        """The model of the moment."""
        self._seen: Signature | None = self.current.signature

    async def watch(self, seconds: float) -> None:
        """Look at the file again and again, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await self.look()

    async def look(self) -> None:
        """Load the file if it is not the one that was last looked at."""
        try:
            seen: Signature | None = Signature.of(self._path)
        except LessramError:
            seen = None
        if seen == self._seen:
            return
        self._seen = seen
        if seen is None:
            log.warning("%s is gone; generation %d goes on", self._path, self.current.generation)
            return
        number = self.current.generation + 1
        try:
            loaded = await asyncio.to_thread(load, self._path, self._opener, number, verify=self._verify)
        except Exception as error:  # whatever a file does to its reader, the old model goes on
            log.error("refused: %s; generation %d goes on", error, self.current.generation)
            self._on_reload("refused", self.current.generation)
            return
        self.current, self._seen = loaded, loaded.signature
        log.info("generation %d: %s, checksum %s", number, self._path, loaded.checksum[:16])
        self._on_reload("taken", number)
