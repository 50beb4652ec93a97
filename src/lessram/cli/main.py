"""The command line: parse, call, print. Results go to stdout, progress and messages to stderr.

Exit codes: 0 done, 1 data or run-time error, 2 usage. No traceback reaches a user.
Nothing heavy is imported before a command runs, so that --help answers at once.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lessram import __version__
from lessram.cli import bounds, compress, evaluate, export, import_vw, info, merge, predict, reproduce, serve, train
from lessram.errors import LessramError, SpecError

_OUT_OF_MEMORY = "out of memory: a table of 2^B slots (--bits) takes 3 bytes a slot, more with other --weights"


class _Commands(TyperGroup):
    """Takes care of what Typer would end without a word: Ctrl-C, and output that cannot be written."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _ctrl_c_said():  # to parse the command line, Typer imports half of what it needs
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _ctrl_c_said():
            result = super().invoke(ctx)
            sys.stdout.flush()
        return result


@contextlib.contextmanager
def _ctrl_c_said() -> Iterator[None]:
    """Ctrl-C becomes a message, before Typer makes a bare exit code of it."""
    try:
        yield
    except KeyboardInterrupt:
        raise LessramError("interrupted") from None


app = typer.Typer(
    name="lessram",
    cls=_Commands,
    help="Learn linear models on streams of any length in 24 bits per coefficient, and predict with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

app.command("train", short_help="Learn a model from data, in one pass.")(train.train)
app.command("resume", short_help="Continue from a checkpoint.")(train.resume)
app.command("predict", short_help="Predict rows: one number per line.")(predict.predict)
app.command("evaluate", short_help="Score a model on labelled data.")(evaluate.evaluate)
app.command("info", short_help="Describe a model: its options and its size.")(info.info)
app.command("merge", short_help="Make one model of several that were trained separately.")(merge.merge)
app.command("compress", short_help="Write a model compressed, ready to predict from.")(compress.compress)
app.command("export", short_help="Write coefficients for other programs.")(export.export)
app.command("serve", short_help="Serve a model over HTTP.")(serve.serve)
app.command("import-vw", short_help="Turn a readable Vowpal Wabbit model into a lessram model.")(import_vw.import_vw)
app.command("bounds", short_help="Print the paper's bounds for given numbers.")(bounds.bounds)
app.command("reproduce", short_help="Repeat the paper's figures, its table and its bounds.")(reproduce.reproduce)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lessram {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn linear models on streams of any length in 24 bits per coefficient, and predict with them."""


def run() -> None:
    """Run the command line and turn every expected failure into one clear line."""
    _open_what_is_closed()
    _write_letters_of_any_kind()
    _let_arrow_return_memory()
    try:
        app(prog_name="lessram")
    except SpecError as error:
        _stop(str(error), 2)
    except LessramError as error:
        _stop(str(error), 1)
    except OSError as error:
        # What is left of the output goes nowhere, or Python would complain once more at the end.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has gone, as with `| head`: nobody is left to tell
            sys.exit(1)
        if error.errno == errno.ENOMEM:
            _stop(_OUT_OF_MEMORY, 1)
        _stop(f"{error.filename or 'cannot write'}: {error.strerror or error}", 1)
    except KeyboardInterrupt:  # before or after a command
        _stop("interrupted", 1)
    except MemoryError:
        _stop(_OUT_OF_MEMORY, 1)


def _open_what_is_closed() -> None:
    """A process may be started without stdout or stderr (`>&-`): what is written there goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)


def _write_letters_of_any_kind() -> None:
    """What stdout has no letter for, in a locale without UTF-8, is written as JSON would: `--json` stays JSON."""
    codecs.register_error("lessram.escape", _escape)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="lessram.escape")


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _let_arrow_return_memory() -> None:
    """Arrow's own allocator keeps what is freed: up to 100 MiB more while training from Parquet, and no faster."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _stop(message: str, code: int) -> None:
    sys.stdout.flush()
    print(f"lessram: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    run()
