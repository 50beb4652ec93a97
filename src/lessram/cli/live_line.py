"""One line on a terminal's stderr that tells how work goes, written again and again."""

from __future__ import annotations

import os
import sys

_WIPE = "\r\x1b[K"


class LiveLine:
    """Shows the newest text; does nothing where stderr is no terminal, or where nobody wants to see it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.seen = sys.stderr.isatty() and not quiet
        self._drawn = False

    def show(self, text: str) -> None:
        """Put this text in the place of the last; what is wider than the terminal could not be wiped away."""
        if self.seen:
            self._write(_WIPE + text[: _columns() - 1])
            self._drawn = True

    def keep(self) -> None:
        """Leave the line as it is and go to the next."""
        self._end("\n")

    def wipe(self) -> None:
        """Leave nothing behind."""
        self._end(_WIPE)

    def _end(self, how: str) -> None:
        if self._drawn:
            self._write(how)
            self._drawn = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns() -> int:
    """How wide the terminal is at this moment."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
