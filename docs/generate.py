"""Write docs/commands.md from the command line's own --help; `--check` only compares."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lessram.cli.main import app

TARGET = Path(__file__).with_name("commands.md")
COMMANDS = ["", *(str(command.name) for command in app.registered_commands)]


def help_of(command: str) -> str:
    """What `lessram COMMAND --help` prints, at a fixed width."""
    words = [sys.executable, "-m", "lessram.cli.main", *command.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "110", "TERMINAL_WIDTH": "110", "NO_COLOR": "1"}
    text = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
    return text.replace("python -m lessram.cli.main", "lessram").rstrip()


def page() -> str:
    parts = ["# Commands", "", "Generated from `--help` by `docs/generate.py`.", ""]
    for command in COMMANDS:
        parts += [f"## lessram {command}".rstrip(), "", "```", help_of(command), "```", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TARGET.read_text() == text else "docs/commands.md is out of date: run `make docs`")
    TARGET.write_text(text)
