"""The fuzzer of parsers, for a moment: `tools/fuzz_parsers.py` runs as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_parsers.py"


def test_broken_text_is_read_as_its_lines_are_and_nothing_is_touched_outside():
    done = subprocess.run([sys.executable, TOOL, "--lines", "300"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("nothing wrong") == 6
