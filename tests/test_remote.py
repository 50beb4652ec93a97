"""Sources by URL, through fsspec's filesystem in memory and its view of local files."""

from __future__ import annotations

import builtins
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cache import plan_of, train
from test_source import example_text, expected_rows, rows_of

from lessram.data import remote
from lessram.data.formats import Choices, Form, Stream
from lessram.data.reader import Position, read_batches
from lessram.data.source import TextBuffer, expand, identify
from lessram.errors import DataError, LessramError
from lessram.learning.training import Training
from lessram.model.model import Model
from lessram.model.spec import Spec

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def memory() -> Iterator[object]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_files_globs_and_folders(memory) -> None:
    for name in ("/logs/b.svm", "/logs/a.svm.gz", "/logs/sub/c.svm", "/logs/_SUCCESS", "/logs/.crc/x"):
        memory.pipe(name, b"1 2:1\n")
    assert expand(["memory://logs/b.svm"]) == ["memory://logs/b.svm"]
    assert expand(["memory://logs/*.svm*"]) == ["memory:///logs/a.svm.gz", "memory:///logs/b.svm"]
    assert expand(["memory://logs"]) == [f"memory:///logs/{name}" for name in ("a.svm.gz", "b.svm", "sub/c.svm")]
    with pytest.raises(DataError, match=r"memory://logs/\*\.csv: found no file that matches, expected at least one"):
        expand(["memory://logs/*.csv"])


def test_the_same_rows_as_from_a_local_file(memory, tmp_path: Path) -> None:
    text = example_text(300)
    memory.pipe("/plain.svm", text)
    memory.pipe("/packed.svm.gz", gzip.compress(text))
    (tmp_path / "local.svm").write_bytes(text)
    for url in ("memory://plain.svm", "memory://packed.svm.gz", f"file://{tmp_path}/local.svm"):
        assert rows_of(read_batches([url], slots=4096, threads=2)) == expected_rows(text)


def test_the_format_is_told_by_the_name_or_the_content(memory) -> None:
    memory.pipe("/a.csv", b"click,site\n1,rome\n")
    memory.pipe("/b", b"1 |a x\n")
    assert Stream(["memory://a.csv"], Form(name="auto")).form.name == "csv"
    assert Stream(["memory://b"], Form(name="auto")).form.name == "vw"


def test_tables_by_url(memory, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pa.table({"click": [1, 0, 1], "site": ["rome", "oslo", "rome"], "price": [0.5, 2, 1]})
    parquet.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, str(tmp_path / "a.arrow"), compression="uncompressed")
    choices = Choices(label="click")
    for name in ("a.parquet", "a.arrow"):
        memory.pipe(f"/{name}", (tmp_path / name).read_bytes())
        local = rows_of(read_batches([str(tmp_path / name)], slots=4096, choices=choices))
        assert rows_of(read_batches([f"memory://{name}"], slots=4096, choices=choices)) == local
        assert len(local) == 3
    with pytest.raises(DataError, match=r"memory://missing\.parquet: cannot read: No such file or directory"):
        read_batches(["memory://missing.parquet"], slots=4096, choices=choices)


def test_going_on_in_the_middle(memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (1000,))
    text = example_text(100)
    for name, data in (("/plain", text), ("/packed", gzip.compress(text))):
        memory.pipe(name, data)
        url = f"memory:/{name}"
        stops: list[Position] = [position for _, position in read_batches([url], slots=4096)]
        rest = rows_of(read_batches([url], slots=4096, start=stops[3]))
        assert rest == expected_rows(text)[-len(rest) :]
        assert 0 < len(rest) < 100


def test_a_file_that_only_goes_forward(memory, monkeypatch: pytest.MonkeyPatch) -> None:
    text = example_text(100)
    memory.pipe("/a.svm", text)
    opened = remote._open_system("memory://a.svm")[0].open("/a.svm", "rb")
    assert b"".join(iter(lambda: remote._Forward(opened).read(100), b"")) == text


def test_identities_change_with_the_file_and_resuming_notices(memory, tmp_path: Path) -> None:
    memory.pipe("/a.svm", example_text(100))
    (before,) = identify(["memory://a.svm"])
    assert (before.path, before.size) == ("memory://a.svm", len(example_text(100)))
    assert identify(["memory://a.svm"]) == [before]
    memory.pipe("/a.svm", example_text(100)[:-2] + b"2\n")
    (after,) = identify(["memory://a.svm"])
    assert (after.size, after.mtime_ns != before.mtime_ns) == (before.size, True)
    plan = plan_of(["memory://a.svm"], passes=1, checkpoint=str(tmp_path / "c"), checkpoint_every=1)
    for _ in Training(Model.new(Spec(slots=4096, seed=5)), plan).run():
        pass
    memory.pipe("/a.svm", b"1 2:1\n")
    with pytest.raises(DataError, match=r"memory://a\.svm: cannot resume: the file changed"):
        Training.resumed(tmp_path / "c")


def test_training_gives_the_bytes_of_a_local_file(memory, tmp_path: Path) -> None:
    text = example_text(100)
    memory.pipe("/a.svm", text)
    (tmp_path / "a.svm").write_bytes(text)
    remote_training = Training(
        Model.new(Spec(slots=4096, seed=5)), plan_of(["memory://a.svm"], cache=str(tmp_path / "cache"))
    )
    for _ in remote_training.run():
        pass
    train(plan_of([str(tmp_path / "a.svm")]))
    remote_training.model.save(tmp_path / "remote")
    assert (tmp_path / "remote").read_bytes() == (tmp_path / "model").read_bytes()


def test_what_is_not_there(memory) -> None:
    for attempt in (identify, lambda urls: list(read_batches(urls, slots=8))):
        with pytest.raises(DataError, match=r"^memory://missing\.svm: cannot read: No such file or directory$"):
            attempt(["memory://missing.svm"])
    with pytest.raises(DataError, match=r"^strange://a: cannot read: Protocol not known: strange"):
        expand(["strange://a"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(*names: str):
        def import_(name: str, *rest: object, **more: object) -> object:
            if name.split(".")[0] in names:
                raise ImportError(f"No module named {name!r}")
            return real(name, *rest, **more)  # type: ignore[arg-type]

        return import_

    monkeypatch.setattr(builtins, "__import__", without("fsspec"))
    with pytest.raises(LessramError, match=r"^s3://b/x: reading s3:// needs fsspec: pip install fsspec s3fs$"):
        expand(["s3://b/x"])
    with pytest.raises(LessramError, match="needs fsspec: pip install fsspec and the package for odd://"):
        expand(["odd://b/x"])
    monkeypatch.setattr(builtins, "__import__", without("s3fs"))
    with pytest.raises(LessramError, match=r"s3://b/x: reading s3:// needs more: pip install s3fs \("):
        expand(["s3://b/x"])
