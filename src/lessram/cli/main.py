"""The command line: parse, call, print. Results go to stdout, progress and messages to stderr.

Exit codes: 0 done, 1 data or run-time error, 2 usage. No traceback reaches a user.
Nothing heavy is imported before a command runs, so that --help answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lessram import __version__
from lessram.cli import evaluate, import_vw, info, predict, train
from lessram.errors import LessramError, SpecError

app = typer.Typer(
    name="lessram",
    help="Learn linear models on streams of any length in 24 bits a coefficient, predict with them, look into them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

app.command("train")(train.train)
app.command("resume")(train.resume)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("info")(info.info)
app.command("import-vw")(import_vw.import_vw)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lessram {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Learn linear models on streams of any length in 24 bits a coefficient, predict with them, look into them."""


def run() -> None:
    """Run the command line and turn every expected failure into one clear line."""
    try:
        app()
    except SpecError as error:
        _stop(str(error), 2)
    except LessramError as error:
        _stop(str(error), 1)
    except BrokenPipeError:
        # The reader of our output has gone (as with `| head`); nothing is left to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        _stop("interrupted; the last checkpoint, if any, is whole", 1)
    except MemoryError:
        _stop("out of memory; use a smaller --bits", 1)


def _stop(message: str, code: int) -> None:
    sys.stdout.flush()
    print(f"lessram: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    run()
