"""Progress on stderr: a live line on a terminal, a table that doubles otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from lessram.cli.live_line import LiveLine
from lessram.cli.summary import has_classes, loss_name
from lessram.learning.metrics import Scores

_LINE_EVERY = 0.1  # seconds between updates of the live line


class Progress:
    """Shows how a run goes. `update` is called after every batch; `before` examples are not of this run."""

    def __init__(self, bits_per_slot: float, *, loss: str = "logistic", quiet: bool = False, before: int = 0) -> None:
        self._bits = bits_per_slot
        self._loss, self._has_classes = loss_name(loss), has_classes(loss)
        self._before = before
        self._quiet = quiet
        self._line = LiveLine(quiet=quiet)
        self._start = time.perf_counter()
        self._last = Scores.new()
        self._next_row = 1
        self._next_time = 0.0

    def update(self, examples: int, scores: Callable[[], Scores], share: float | None = None) -> None:
        """Show the scores so far, asked for only when they are shown; `share` is the part of the input that is done."""
        if self._quiet or not self._is_due(examples):
            return
        if self._line.seen:
            self._draw_line(scores(), share)
        else:
            self._print_row(scores())

    def _is_due(self, examples: int) -> bool:
        if not self._line.seen:
            return examples >= self._next_row
        now = time.perf_counter()
        due = now >= self._next_time
        if due:
            self._next_time = now + _LINE_EVERY
        return due

    def close(self) -> None:
        """End the live line, so that the next output starts on a line of its own."""
        self._line.keep()

    def _speed(self, examples: int) -> float:
        return (examples - self._before) / max(time.perf_counter() - self._start, 1e-9)

    def _draw_line(self, scores: Scores, share: float | None) -> None:
        elapsed = time.perf_counter() - self._start
        left = ""
        if share:
            left = f"{share:4.0%}, {elapsed * (1 - share) / share:,.0f} s left  "
        quality = f"AUC {_form(scores.auc, '.4f')}" if self._has_classes else f"RMSE {_form(scores.rmse, '.5g')}"
        text = (
            f"{left}{scores.examples:,} examples  {self._loss} {_form(scores.log_loss, '.5f')}  "
            f"{quality}  {self._speed(scores.examples):,.0f} examples/s"
        )
        if scores.examples == 0:
            text = "looking at the first examples"
        self._line.show(text)

    def _print_row(self, scores: Scores) -> None:
        if self._has_classes:
            quality = {"error": _form(scores.error_rate, ".4%"), "AUC": _form(scores.auc, ".5f")}
        else:
            quality = {"RMSE": _form(scores.rmse, ".6g")}
        if self._next_row == 1:
            columns = ("examples", self._loss, "since last", *quality, "bits/slot", "examples/s")
            print(_row(columns), file=sys.stderr)
        since = scores.since(self._last)
        fields = (
            f"{scores.examples:,}",
            _form(scores.log_loss, ".6f"),
            _form(since.log_loss, ".6f"),
            *quality.values(),
            f"{self._bits:g}",
            f"{self._speed(scores.examples):,.0f}",
        )
        print(_row(fields), file=sys.stderr, flush=True)
        self._last = scores.copy()
        self._next_row = 2 * scores.examples


def _row(fields: tuple[str, ...]) -> str:
    return "  ".join(f"{field:>12}" for field in fields)


def _form(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)
