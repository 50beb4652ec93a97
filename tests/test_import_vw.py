"""Readable Vowpal Wabbit models: imported, they predict what Vowpal Wabbit predicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from lessram import FileFormatError, Model, SpecError
from lessram.cli.main import app
from lessram.learning.learner import Learner
from lessram.model.vw_model import CONSTANT, import_vw

HEADER = """Version 9.11.9
Id some id
Min label:-50
Max label:50
bits:{bits}
lda:0
0 ngram:
0 skip:
options:{options}
Checksum: 396771088
:{resumable}
"""
STATE = """initial_t 0
t 25
sd::oec.weighted_labeled_examples 19
current_pass 1
l1_state {gravity}
l2_state {contraction}
"""


def write_model(folder: Path, weights: str, *, bits: int = 4, options: str = "", state: str = "") -> Path:
    path = folder / "readable.txt"
    path.write_text(HEADER.format(bits=bits, options=options, resumable=int(bool(state))) + state + weights)
    return path


def random_lines(rows: int, seed: int) -> str:
    """Rows of three namespaces with names, numbers and values."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        words = random.integers(0, 12, 4)
        label = 1 if words[0] + words[1] + random.integers(0, 6) > 13 else -1
        value = random.integers(1, 20) / 8
        lines.append(f"{label} |user u{words[0]} age:{value} |site {words[1]} s{words[2]} |b s{words[3]} plain")
    return "\n".join(lines) + "\n"


def run_vw(*arguments: object) -> None:
    pytest.importorskip("vowpalwabbit", reason="the vowpalwabbit package is not installed")
    command = [sys.executable, "-m", "vowpalwabbit", *map(str, arguments), "--quiet"]
    subprocess.run(command, check=True, capture_output=True)


def predict(model: Model, path: Path) -> np.ndarray:
    return Learner(model).predict(path)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--sgd -q us --l2 0.001 --l1 0.0001 -b 12",
        "--ftrl --interactions usb -q bb --hash all -b 18",
        "--ignore b --hash_seed 7 --noconstant --predict_only_model",
        "--keep u --keep b --cubic ubb -b 6",
    ],
)
def test_predictions_are_those_of_vowpal_wabbit(tmp_path, arguments):
    data, held_out = tmp_path / "data.vw", tmp_path / "held_out.vw"
    readable, binary, predictions = (tmp_path / name for name in ("readable.txt", "binary.vw", "predictions"))
    data.write_text(random_lines(300, seed=1))
    held_out.write_text(random_lines(100, seed=2))
    files = ("--readable_model", readable, "-f", binary)
    run_vw("-d", data, "--loss_function", "logistic", "--learning_rate", 0.2, *arguments.split(), *files)
    run_vw("-d", held_out, "-t", "-i", binary, "-r", predictions)
    theirs = np.array([float(line.split()[0]) for line in predictions.read_text().splitlines()])

    exact = predict(import_vw(readable, weights="float32").model, held_out)
    assert np.ptp(theirs) > 0.5
    # The file has six digits of each weight.
    np.testing.assert_allclose(exact, theirs, atol=1e-5, rtol=1e-5)

    rounded = import_vw(readable, weights="q4.11").model
    features = 10 if "q" not in arguments and "c" not in arguments else 60
    assert np.abs(predict(rounded, held_out) - theirs).max() < features * 2.5 * rounded.spec.step


def test_names_of_an_inverted_hash_are_passed_over(tmp_path):
    data = tmp_path / "data.vw"
    data.write_text(random_lines(100, seed=3))
    readable, inverted = tmp_path / "readable.txt", tmp_path / "inverted.txt"
    run_vw("-d", data, "-q", "us", "--readable_model", readable, "--invert_hash", inverted)
    one, two = import_vw(readable, loss="squared"), import_vw(inverted, loss="squared")
    assert one.weights > 50
    assert one.model.table.cells.tobytes() == two.model.table.cells.tobytes()
    assert one.model.intercept == two.model.intercept != 0


def test_weights_land_in_their_slots_and_the_constant_in_the_intercept(tmp_path):
    constant = CONSTANT & 15
    path = write_model(tmp_path, f"3:0.5 1.25 1\n5:-1.5 2 1\n{constant}:-7.25 3 1\n")
    found = import_vw(path)
    assert (found.weights, found.clipped, found.largest) == (3, 0, 1.5)
    coefficients = found.model.coefficients()
    assert (coefficients[3], coefficients[5], found.model.intercept) == (0.5, -1.5, -7.25)
    assert not found.model.table.cells["level"].any()
    assert np.count_nonzero(coefficients) == 3  # the constant's slot too: a feature that shares it uses its weight


def test_without_a_constant_its_slot_is_a_slot_like_any_other(tmp_path):
    path = write_model(tmp_path, f"{CONSTANT & 15}:0.25\n", options=" --noconstant")
    model = import_vw(path).model
    assert not model.spec.intercept
    assert model.intercept == 0.0
    assert model.coefficients()[CONSTANT & 15] == 0.25


def test_pending_regularisation_is_carried_out(tmp_path):
    state = STATE.format(gravity=0.25, contraction=0.5)
    model = import_vw(write_model(tmp_path, "1:1.25\n2:-0.75\n3:0.125\n", state=state), weights="float32").model
    assert model.coefficients()[:4].tolist() == [0.0, 0.5, -0.25, 0.0]


def test_rounding_is_unbiased_and_follows_the_seed(tmp_path):
    slots = 1 << 16
    weights = "".join(f"{slot}:0.3\n" for slot in range(slots))
    path = write_model(tmp_path, weights, bits=16)
    cells = import_vw(path, weights="q2.1", seed=1).model.table.cells
    assert set(cells["weight"].tolist()) == {0, 1}  # 0.3 lies between 0 and 1/2
    assert abs(cells["weight"].mean() / 2 - 0.3) < 5 * 0.25 / slots**0.5
    assert cells.tobytes() == import_vw(path, weights="q2.1", seed=1).model.table.cells.tobytes()
    assert cells.tobytes() != import_vw(path, weights="q2.1", seed=2).model.table.cells.tobytes()


def test_weights_beyond_the_range_are_refused_or_clipped_and_counted(tmp_path):
    path = write_model(tmp_path, "1:9.5\n2:-4\n3:1\n")
    with pytest.raises(SpecError, match=r"found 2 of 3 weights beyond q2\.13's range of 3\.99988, the largest 9\.5"):
        import_vw(path, weights="q2.13")
    found = import_vw(path, weights="q2.13", clip=True)
    assert (found.clipped, found.largest) == (2, 9.5)
    top = found.model.spec.grid.largest
    assert found.model.coefficients()[1:4].tolist() == [top, -top, 1.0]
    assert import_vw(path, weights="q4.11").clipped == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 |a b c\n", "not a readable Vowpal Wabbit model: found '1 |a b c'"),
        ("", "not a readable Vowpal Wabbit model"),
        ("Version 9.11.9\nbits:18\n", "found no end of its header"),
        (HEADER.format(bits="x", options="", resumable=0), "found bits 'x', expected a number from 0 to 32"),
        (HEADER.format(bits=4, options=" --oaa 3", resumable=0), "trained with --oaa, which lessram does not have"),
        (HEADER.format(bits=4, options=" --quadratic ::", resumable=0), "products of any namespaces"),
        (HEADER.format(bits=4, options=" --interactions abcd", resumable=0), "products 'abcd', expected two or three"),
        (HEADER.format(bits=4, options=" --link poisson", resumable=0), "--link poisson, expected identity or"),
        (HEADER.format(bits=4, options=" --hash_seed x", resumable=0), "--hash_seed 'x', expected a number"),
        (HEADER.replace("0 ngram:", "1 ngram:a2").format(bits=4, options="", resumable=0), "--ngram a2"),
        (HEADER.replace("lda:0", "lda:5").format(bits=4, options="", resumable=0), "--lda model"),
        (
            HEADER.format(bits=4, options="", resumable=0) + "1:0.5\n16:1\n",
            "txt:13: found '16:1', expected slot:weight",
        ),
        (HEADER.format(bits=4, options="", resumable=0) + "1:nan\n", "txt:12: found '1:nan'"),
        (HEADER.format(bits=4, options="", resumable=0) + "1:0.5\nhello\n", "txt:13: found 'hello'"),
    ],
)
def test_what_is_no_such_model_is_refused(tmp_path, text, message):
    path = tmp_path / "m.txt"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=".*".join(message.split("|")).replace("(", r"\(")):
        import_vw(path)


def test_choices_that_the_file_makes_are_refused(tmp_path):
    with pytest.raises(SpecError, match="slots cannot be chosen"):
        import_vw(write_model(tmp_path, ""), slots=8)


def test_command(tmp_path):
    readable = write_model(tmp_path, "1:0.5\n2:-8\n", options=" --quadratic ab --ignore c")
    output = tmp_path / "m.lessram"
    command = ["import-vw", str(readable), "-o", str(output)]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, SpecError)
    assert not output.exists()
    done = CliRunner().invoke(app, [*command, "--clip", "--json"])
    assert done.exit_code == 0, done.output
    figures = msgspec.json.decode(done.stdout)
    assert {"weights": 2, "clipped": 1, "largest": 8.0, "slots": 16, "bits_per_slot": 24.0}.items() <= figures.items()
    reader = Model.load(output).reader["vw"]
    assert (reader["interactions"], reader["ignore"], reader["hash"]) == (["ab"], "c", "strings")
    said = CliRunner().invoke(app, [*command, "--weights", "float32"])
    assert "clipped 0" in said.stdout
    assert "rates start fresh" in said.stdout


def test_training_goes_on_from_an_imported_model(tmp_path):
    data, output = tmp_path / "more.vw", tmp_path / "m.lessram"
    data.write_text(random_lines(50, seed=4))
    readable = write_model(tmp_path, "1:0.5\n", bits=10, options=" --quadratic us")
    assert CliRunner().invoke(app, ["import-vw", str(readable), "-o", str(output)]).exit_code == 0
    onward = ["train", str(data), "-i", str(output), "-o", str(output), "--interactions", "us", "--json", "--quiet"]
    done = CliRunner().invoke(app, onward)
    assert done.exit_code == 0, done.output
    assert Model.load(output).examples == 50
