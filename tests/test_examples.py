"""The small examples run, and what they print says that they learned."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def output_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def figure(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    assert found is not None, f"{pattern!r} is not in:\n{output}"
    return float(found[1].replace(",", ""))


def test_stream(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of("stream.py", capsys)
    assert figure(r"([\d,]+) examples, 0 lines skipped", output) == 20_000
    # Click rates are uniform between 0 and 1: knowing them all gives 0.5, knowing nothing 0.69.
    assert 0.45 < figure(r"log-loss ([\d.]+)", output) < 0.56
    assert figure(r"AUC ([\d.]+)", output) > 0.75
    assert figure(r"loaded again: ([\d,]+)", output) == 20_000


def test_serving(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of("serving.py", capsys)
    assert "adds at most 0.100% on the hold-out" in output
    trained, served = figure(r"trained ([\d,]+) bytes", output), figure(r"served ([\d,]+):", output)
    assert served < trained / 10
    assert figure(r"([\d.]+) bits a coefficient", output) < 2
    assert len(re.findall(r"^0\.\d{3} {'ad'", output, re.MULTILINE)) == 3


def test_text_classification(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of("text_classification.py", capsys)
    # Five opinions, each right with probability 2/3: the best possible accuracy is 0.79.
    assert 0.72 < figure(r"accuracy on unseen reviews: ([\d.]+)", output) < 0.85
    assert 0.72 < figure(r"in batches: ([\d.]+)", output) < 0.85
    assert figure(r"([\d.]+) good: a wonderful", output) > 0.7
    assert figure(r"([\d.]+) good: dull", output) < 0.3
    assert 3 * 2**18 <= figure(r"([\d,]+) bytes for", output) < 3.1 * 2**18
