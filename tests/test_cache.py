"""The cache of parsed batches: the same model as from the text, and never a wrong one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from streams import LENGTHS, make_rows, to_batch
from test_source import example_text

from lessram.data import cache as cache_module
from lessram.data.formats import Choices, Form, Reading, Stream
from lessram.data.parsing import BadLine
from lessram.data.rows import ParsedPart
from lessram.data.source import Place, TextBuffer, identify
from lessram.data.unfinished import unfinished
from lessram.errors import SpecError
from lessram.learning.training import Plan, Training, plan_sources
from lessram.model.model import Model
from lessram.model.spec import Spec

SLOTS = 4096


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 1000 bytes, so that small files have many."""
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (1000,))


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    for number in range(3):
        (tmp_path / f"{number}.svm").write_bytes(b"1 2:x\n" + example_text(60, number))
    return [str(tmp_path / "0.svm"), str(tmp_path / "[12].svm")]


def plan_of(sources: list[str], **choices: object) -> Plan:
    stream = Stream(sources, Form(name="auto"))
    reading = stream.decide(Choices())
    return Plan(
        **{"sources": plan_sources(sources), "form": stream.form, "reading": reading, "passes": 3, "max_errors": 3}
        | choices
    )


def train(plan: Plan, stop: int | None = None, standing: Training | None = None) -> tuple[Training, bytes]:
    """Carry out a plan, or a part of it; the file of the model that it makes."""
    training = standing or Training(Model.new(Spec(slots=SLOTS, seed=5)), plan)
    for number, _ in enumerate(training.run()):
        if number == stop:
            break
    target = Path(plan.sources[0].path).with_name("model")
    training.model.save(target)
    return training, target.read_bytes()


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if "partial" in name]


def never(*_: object, **__: object) -> None:
    raise AssertionError("the text was parsed again")


@pytest.mark.parametrize("threads", [1, 3])
def test_same_bytes_with_and_without(tmp_path: Path, sources: list[str], monkeypatch, threads: int) -> None:
    _, expected = train(plan_of(sources))
    plan = plan_of(sources, cache=str(tmp_path / "cache"), threads=threads)
    first, found = train(plan)
    assert found == expected
    assert (first.report.skipped, len(first.report.messages)) == (3, 3)
    assert (first.notes, leftovers(tmp_path)) == ([], [])
    monkeypatch.setattr(Stream, "parts", never)
    second, found = train(plan)
    assert found == expected
    assert vars(second.report) == vars(first.report)
    assert second.notes == []


def test_all_that_a_part_may_carry(tmp_path: Path) -> None:
    """Weights, 64-bit slots, row starts above 0, bad lines and their words, columns met, no rows at all."""
    rows = make_rows(96, LENGTHS, valued=True)
    wide, binary = to_batch(rows, slot_type=np.uint64), to_batch(rows, valued=False)
    parts = [
        ParsedPart(wide, 2, [BadLine("a:1", "found \u00fc"), BadLine("a:9", "x")], 17, Place(0, 100, 12), 3, 4),
        ParsedPart(wide.slice(0, 0), 0, [], 0, Place(0, 200, 20)),
        ParsedPart(binary.slice(3, 9), 0, [], 1 << 40, Place(2, 1 << 40, 1), met=np.array([True, False, True])),
    ]
    form, reading = Form(name="svmlight"), Reading()
    key = cache_module.Key(sources=[], form=form, reading=reading, slots=96, labels="binary", max_errors=0)
    cache = cache_module.Cache(str(tmp_path / "cache"), key)
    assert list(cache.recording(iter(parts))) == parts

    def content(part: ParsedPart) -> list[object]:
        first = int(part.batch.indptr[0])
        span = slice(first, int(part.batch.indptr[-1]))
        batch = part.batch._replace(indptr=part.batch.indptr - first, slots=part.batch.slots[span])
        batch = batch if batch.values is None else batch._replace(values=batch.values[span])
        return [None if array is None else (array.dtype, array.tolist()) for array in batch] + [
            None if part.met is None else part.met.tolist(),
            *part._replace(met=None)[1:],
        ]

    expected = [content(part) for part in parts]
    for start, skipped in ((Place(), 0), (Place(0, 100, 12), 1), (Place(2, 1 << 40, 1), 3)):
        found = cache.parts(start, tolerate=lambda: 9)
        assert found is not None
        assert [content(part) for part in found] == expected[skipped:]
    assert cache.parts(Place(0, 101, 12), tolerate=lambda: 9) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_going_on_inside_a_cached_pass(tmp_path: Path, sources: list[str], threads: int) -> None:
    plan = plan_of(
        sources, cache=str(tmp_path / "cache"), checkpoint=str(tmp_path / "c"), checkpoint_every=25, threads=threads
    )
    _, expected = train(plan)
    steps = sum(1 for _ in Training(Model.new(Spec(slots=SLOTS, seed=5)), plan).run())
    for stop in (7, steps // 3 + 5, steps - 1):
        train(plan, stop)
        resumed = Training.resumed(tmp_path / "c")
        assert train(plan, standing=resumed)[1] == expected
        assert resumed.notes == []


def test_going_on_where_the_cache_has_no_place(tmp_path: Path, sources: list[str], monkeypatch) -> None:
    """A checkpoint from chunks of another size: the rest of its pass is read from the text."""
    plan = plan_of(sources, cache=str(tmp_path / "cache"), checkpoint=str(tmp_path / "c"), checkpoint_every=1)
    _, expected = train(plan)
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (777,))
    train(msgspec.structs.replace(plan, cache=None), 3)
    resumed = Training.resumed(tmp_path / "c")
    resumed.plan = plan
    resumed._cache = resumed._open_cache()
    assert train(plan, standing=resumed)[1] == expected


def test_what_a_killed_run_left_goes_when_its_cache_is_written(tmp_path: Path, sources: list[str], monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 999_999_999)  # more than any system has
        left = unfinished(tmp_path / "cache")
    left.write_bytes(b"half")
    assert leftovers(tmp_path) == [left.name]
    train(plan_of(sources, cache=str(tmp_path / "cache")))
    assert leftovers(tmp_path) == []


def test_a_changed_source_or_option_makes_a_new_cache(tmp_path: Path, sources: list[str]) -> None:
    path = tmp_path / "cache"
    train(plan_of(sources, cache=str(path)))
    before = path.read_bytes()
    (tmp_path / "0.svm").write_bytes(example_text(61, 7))
    training, found = train(plan_of(sources, cache=str(path)))
    assert training.notes == [
        f"{path}: the cache is of other sources, other options or another version of lessram; "
        "reading the sources instead"
    ]
    assert path.read_bytes() != before
    assert found == train(plan_of(sources))[1]
    assert train(plan_of(sources, cache=str(path), max_errors=9))[0].notes != []
    assert train(plan_of(sources, cache=str(path), max_errors=9))[0].notes == []


def test_every_kind_of_damage_is_noticed(tmp_path: Path, sources: list[str]) -> None:
    path = tmp_path / "cache"
    plan = plan_of(sources, cache=str(path), passes=1)
    _, expected = train(plan)
    whole = path.read_bytes()
    spots = [0, 9, 20, 60, len(whole) // 3, len(whole) // 2, len(whole) - 200, len(whole) - 20, len(whole) - 1]
    damaged = [whole[:spot] + bytes([whole[spot] ^ 1]) + whole[spot + 1 :] for spot in spots]
    damaged += [whole[: len(whole) // 2], whole[:5], b"", b"1 2:1\n" * 100]
    for bytes_ in damaged:
        path.write_bytes(bytes_)
        training, found = train(plan)
        assert found == expected
        assert len(training.notes) == 1
        assert "reading the sources instead" in training.notes[0]


def test_a_run_that_ends_early_leaves_no_cache(tmp_path: Path, sources: list[str]) -> None:
    train(plan_of(sources, cache=str(tmp_path / "cache")), stop=2)
    assert not (tmp_path / "cache").exists()
    assert leftovers(tmp_path) == []


def test_a_full_disk_ends_the_cache_and_not_the_training(tmp_path: Path, sources: list[str], monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module._Writer, "add", full)
    training, found = train(plan_of(sources, cache=str(tmp_path / "cache"), passes=1))
    assert training.notes == [
        f"{tmp_path / 'cache'}: the cache cannot be written (No space left on device); going on without it"
    ]
    assert found == train(plan_of(sources, passes=1))[1]
    assert leftovers(tmp_path) == []


def test_a_pipe_cannot_be_cached() -> None:
    with pytest.raises(SpecError, match="what comes through a pipe cannot be cached: leave out --cache, or use a file"):
        Plan(sources=identify(["-"]), form=Form(name="svmlight"), reading=Reading(), cache="cache")
