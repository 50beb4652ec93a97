"""Runs `lessram` in the tests' own process, from the words of the command line to the exit code."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple
from unittest import mock

from lessram.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


def lessram(*words: object) -> Result:
    """What a user sees who types `lessram` and these words."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    typed = ["lessram", *map(str, words)]
    with mock.patch("sys.argv", typed), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.run()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Result(code, out.getvalue(), err.getvalue())
