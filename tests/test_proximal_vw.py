"""The float control of FTRL-Proximal is `vw --ftrl`, through both command lines, on real documents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import real_data

from lessram.cli import main
from lessram.model.model import Model

DOCUMENTS = real_data.FOLDER / "rcv1_1k.vw"
CONTROL = "--algorithm ftrl --weights float32 --rates squares32 --step plain --scale none --bits 18 --no-intercept"


def train(data: Path, output: Path, options: str, monkeypatch, capsys) -> dict[str, float]:
    words = ["train", str(data), "-o", str(output), "--json", "--quiet", *options.split()]
    monkeypatch.setattr(sys, "argv", ["lessram", *words])
    with pytest.raises(SystemExit) as stop:
        main.run()
    assert not stop.value.code
    figures: dict[str, float] = json.loads(capsys.readouterr().out)
    return figures


@pytest.mark.parametrize(
    ("theirs", "ours", "nonzeros"),
    [
        ("", "--alpha 0.5 --beta 1", 9738),
        ("--ftrl_alpha 1 --ftrl_beta 0.1 --l1 0.05", "--alpha 1 --beta 0.1 --l1 0.05", 5644),
        ("--ftrl_alpha 1 --ftrl_beta 0.3 --l1 0.3 --l2 1.5", "--alpha 1 --beta 0.3 --l1 0.3 --l2 1.5", 1149),
    ],
    ids=["defaults", "l1", "l1 and l2"],
)
def test_loss_and_nonzeros_are_those_of_vowpal_wabbit(theirs, ours, nonzeros, tmp_path, monkeypatch, capsys):
    pytest.importorskip("vowpalwabbit", reason="the vowpalwabbit package is not installed")
    if not DOCUMENTS.exists():
        pytest.skip(f"{DOCUMENTS} is absent")
    raw, readable = tmp_path / "margins", tmp_path / "weights"
    options = f"-d {DOCUMENTS} -b 18 --ftrl --noconstant --loss_function logistic -r {raw} --readable_model {readable}"
    command = [sys.executable, "-m", "vowpalwabbit", "--quiet", *options.split(), *theirs.split()]
    subprocess.run(command, check=True, capture_output=True)
    labels = [float(line.split(None, 1)[0]) for line in DOCUMENTS.read_text().splitlines()]
    margins = [float(line.split()[0]) for line in raw.read_text().splitlines() if line.strip()]
    loss = float(np.log1p(np.exp(-np.sign(labels) * margins)).mean())
    figures = train(DOCUMENTS, tmp_path / "model", f"{CONTROL} {ours}", monkeypatch, capsys)
    assert figures["examples"] == len(labels) == len(margins)
    assert figures["log_loss"] == pytest.approx(loss, rel=1e-5)
    weights = re.findall(r"^\d+:(\S+)", readable.read_text(), re.MULTILINE)  # of lines "slot:weight ..."
    their_nonzeros = sum(float(weight) != 0 for weight in weights)
    assert np.count_nonzero(Model.load(tmp_path / "model").weights()) == their_nonzeros == nonzeros


def test_the_command_line_implies_squares(tmp_path, monkeypatch, capsys):
    data = tmp_path / "data.svm"
    data.write_text("".join(f"{n % 2} {n % 2 + 1}:1 {n % 7 + 3}:1\n" for n in range(200)))
    figures = train(data, tmp_path / "model", "--algorithm ftrl --l1 2 --bits 4 --alpha 0.5", monkeypatch, capsys)
    model = Model.load(tmp_path / "model")
    assert (model.spec.rates, model.spec.step_rule, model.spec.l1) == ("squares8", "plain", 2.0)
    assert figures["bits_per_slot"] == 24
    assert np.flatnonzero(model.weights()).tolist() == [1, 2], "what tells the labels apart, and nothing else"
