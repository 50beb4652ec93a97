"""The pipeline: the same batches, models and errors from any number of threads, and no thread left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_cache import plan_of, train
from test_source import example_text

from lessram.data.batch import Batch
from lessram.data.formats import Choices, Form, Reading, Stream
from lessram.data.interactions import term_table
from lessram.data.pipeline import Parts, Use
from lessram.data.reader import BatchReader, read_batches
from lessram.data.rows import ParsedPart, Room
from lessram.data.source import Chunk, Place, TextBuffer
from lessram.errors import DataError, TooManyErrors

THREADS = (1, 2, 3, 7)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of 1000 bytes, so that small files have many; and a look at the threads afterwards."""
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (1000,))
    before = set(threading.enumerate())
    yield
    wait_for_the_end_of(lambda: set(threading.enumerate()) - before)


def wait_for_the_end_of(threads: Callable[[], set[threading.Thread]]) -> None:
    deadline = time.monotonic() + 60
    while threads():
        assert time.monotonic() < deadline, "a thread is left running"
        time.sleep(0.001)


def content(batch: Batch) -> list[object]:
    return [None if array is None else (array.dtype, array.tolist()) for array in batch]


def batches_of(reader: BatchReader) -> list[object]:
    return [(content(batch), position) for batch, position in reader]


# Threads change nothing -----------------------------------------------------------------------------------------------


def test_batches_and_positions(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(example_text(100, number) + b"1 2:x\n")
    found = {}
    for threads in THREADS:
        reader = read_batches([str(tmp_path)], slots=512, max_errors=3, threads=threads)
        found[threads] = (batches_of(reader), vars(reader.report))
    assert len(found[1][0]) > 30
    assert found[1][1]["skipped"] == 3
    for threads in THREADS:
        assert found[threads] == found[1]


def test_model_bytes(tmp_path: Path) -> None:
    path = tmp_path / "0.svm"
    path.write_bytes(example_text(300))
    models = {threads: train(plan_of([str(path)], threads=threads, passes=2))[1] for threads in THREADS}
    assert len(set(models.values())) == 1


@pytest.mark.parametrize("allowed", [0, 4])
def test_error_messages(tmp_path: Path, allowed: int) -> None:
    good = example_text(20)
    path = tmp_path / "0.svm"
    path.write_bytes((good + b"1 2:x\n") * 3 + b"7 1:1\n-1 5:\n" * 5 + good * 9)
    messages = set()
    for threads in THREADS:
        reader = read_batches([str(path)], slots=512, max_errors=allowed, threads=threads)
        with pytest.raises(DataError) as caught:
            batches_of(reader)
        assert isinstance(caught.value, TooManyErrors) == bool(allowed)
        messages.add((str(caught.value), reader.report.skipped))
    ((message, skipped),) = messages
    line = 21 if not allowed else 65
    assert message.startswith(f"{path}:{line}: found ")
    assert skipped == allowed + 1


LINES: dict[str, tuple[str, str, str]] = {  # first line, a good one, a bad one
    "svm": ("", "1 3:1 5:0.25\n", "7 3:1\n"),
    "vw": ("", "1 |a x y\n", "7 |a x y\n"),
    "csv": ("click,site\n", "1,rome\n", "1,rome,oslo\n"),
    "jsonl": ("", '{"click": 1, "site": "rome"}\n', '{"click": 7, "site": "rome"}\n'),
}


@pytest.mark.parametrize("ending", LINES)
@pytest.mark.parametrize("chunk", [300, 4096])
def test_the_first_line_too_many_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, chunk: int
) -> None:
    """Chunks have more bad lines than are described, and are parsed before those that come earlier are counted."""
    monkeypatch.setattr(TextBuffer.__init__, "__defaults__", (chunk,))
    head, good, bad = LINES[ending]
    path = tmp_path / f"data.{ending}"
    path.write_text(head + good * 600 + bad * 30 + good * 600 + bad * 40 + good * 600)
    line = 600 + 30 + 600 + 21 + len(head.splitlines())
    label = None if ending in ("svm", "vw") else "click"
    for threads in THREADS:
        reader = read_batches([str(path)], slots=512, label=label, max_errors=50, threads=threads)
        with pytest.raises(TooManyErrors, match=rf"data\.{ending}:{line}: .*; 51 bad lines, 50 allowed"):
            batches_of(reader)
        assert reader.report.skipped == 51


def test_chunks_of_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of features do not fit into one batch: a chunk is handed out in parts, in order."""
    monkeypatch.setattr("lessram.data.rows.ENOUGH", 300)
    words = [" ".join(f"w{(i * j) % 97}" for j in range(1, 6)) for i in range(200)]
    path = tmp_path / "data.vw"
    path.write_text("".join(f"{i % 2} |a {word} |b {word}\n" for i, word in enumerate(words)))
    found = {}
    for threads in THREADS:
        choices = Choices(interactions=("ab",))
        found[threads] = batches_of(read_batches([str(path)], slots=512, choices=choices, threads=threads))
        assert found[threads] == found[1]
    stops = [position.offset for _, position in found[1]]
    assert stops == sorted(set(stops))
    assert len(stops) > 2 * path.stat().st_size / 1000, "more batches than chunks"
    assert sum(len(batch[0][1]) for batch, _ in found[1]) == 200


def test_room_does_not_depend_on_what_was_parsed_before() -> None:
    """Otherwise the ends of batches would depend on which thread takes which chunk."""
    used, fresh = (Room(np.uint32, term_table((), {}), 0) for _ in range(2))
    used.fit(4, 100)
    assert used.grow(3, 5000)
    for room in used, fresh:
        room.fit(2, 10)
        room.rows.slots[:] = range(10)
        assert room.grow(2, 0)
        assert room.rows.slots[:10].tolist() == list(range(10))
    assert [len(array) for array in used.rows] == [len(array) for array in fresh.rows]


# Errors and early ends ------------------------------------------------------------------------------------------------


class Numbers:
    """Chunks that hold nothing but their number; some are trouble."""

    def __init__(self, count: int, trouble: int = -1) -> None:
        self.count, self.trouble, self.read_so_far = count, trouble, 0

    def read(self, buffer: TextBuffer) -> Chunk | None:
        number = self.read_so_far
        if number == self.trouble:
            raise DataError("found trouble while reading")
        if number == self.count:
            return None
        self.read_so_far += 1
        return Chunk(np.zeros(64, np.uint8), 0, "numbers", Place(0, number), Place(0, number + 1))


class Slow:
    """A parser that takes its time with every third chunk, so that later ones are ready before."""

    def __init__(self, trouble: int = -1) -> None:
        self._trouble = trouble

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        number = chunk.start.offset
        if number == self._trouble:
            raise DataError(f"found trouble in chunk {number}")
        if number % 3 == 0:
            time.sleep(0.005)
        batch = Batch(np.float32([number]), np.array([0, 0]), np.uint32([]))
        return ParsedPart(batch, 0, [], 0, chunk.stop)


def numbers(chunks: Numbers, threads: int, trouble: int = -1) -> Iterator[int]:
    parts = Parts(chunks, lambda: Slow(trouble), tolerate=lambda: 0, threads=threads)
    return (int(part.batch.labels[0]) for part in parts)


@pytest.mark.parametrize("threads", THREADS)
def test_parts_come_in_order_and_memory_is_bounded(threads: int) -> None:
    chunks = Numbers(60)
    for expected, found in enumerate(numbers(chunks, threads)):
        assert found == expected
        assert chunks.read_so_far <= expected + 2 + threads
    assert chunks.read_so_far == 60


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("where", ["reading", "parsing"])
def test_an_error_comes_when_its_turn_comes(threads: int, where: str) -> None:
    reading, parsing = (20, -1) if where == "reading" else (-1, 20)
    found = []
    with pytest.raises(DataError, match=r"found trouble (while reading|in chunk 20)"):  # noqa: PT012
        for number in numbers(Numbers(60, reading), threads, parsing):
            found.append(number)
    assert found == list(range(20))


@pytest.mark.parametrize("threads", THREADS)
def test_a_parser_that_cannot_be_made(threads: int) -> None:
    def fail() -> Slow:
        raise DataError("found no parser")

    with pytest.raises(DataError, match="found no parser"):
        list(Parts(Numbers(60), fail, tolerate=lambda: 0, threads=threads))


@pytest.mark.parametrize("threads", THREADS)
def test_stopping_early(threads: int) -> None:
    """No thread stays, and whoever is not asked reads no further."""
    before = set(threading.enumerate())
    chunks = Numbers(10_000)
    parts = numbers(chunks, threads)
    assert [next(parts) for _ in range(5)] == [0, 1, 2, 3, 4]
    del parts
    wait_for_the_end_of(lambda: set(threading.enumerate()) - before)
    assert chunks.read_so_far <= 6 + threads


def in_turn(chunks: Numbers, threads: int, use: Use) -> Generator[None]:
    return Parts(chunks, Slow, tolerate=lambda: 0, threads=threads).use_in_turn(use)


@pytest.mark.parametrize("threads", THREADS)
def test_threads_use_their_parts_in_order_one_at_a_time(threads: int) -> None:
    used, users, alone = [], set(), threading.Lock()

    def use(part: ParsedPart) -> None:
        assert alone.acquire(blocking=False)
        users.add(threading.get_ident())
        used.append(int(part.batch.labels[0]))
        time.sleep(0.001)
        alone.release()

    for _ in in_turn(Numbers(60), threads, use):
        pass
    assert used == list(range(60))
    assert (threading.get_ident() in users) == (threads == 1)
    assert len(users) <= threads


@pytest.mark.parametrize("threads", THREADS[1:])
def test_threads_parse_ahead_while_a_part_is_in_use(threads: int) -> None:
    """As far as there are desks: one more than threads."""
    chunks, used = Numbers(60), []

    def use(part: ParsedPart) -> None:
        used.append(int(part.batch.labels[0]))
        deadline = time.monotonic() + 60
        while chunks.read_so_far < min(used[-1] + threads + 1, 60):
            assert time.monotonic() < deadline, "nobody parses"
            time.sleep(0.001)
        assert chunks.read_so_far <= used[-1] + threads + 1

    for _ in in_turn(chunks, threads, use):
        pass
    assert used == list(range(60))


@pytest.mark.parametrize("threads", THREADS)
def test_what_a_user_of_parts_raises_comes_out(threads: int) -> None:
    used = []

    def use(part: ParsedPart) -> None:
        used.append(int(part.batch.labels[0]))
        if used[-1] == 20:
            raise DataError("found trouble in use")

    with pytest.raises(DataError, match="found trouble in use"):
        list(in_turn(Numbers(60), threads, use))
    assert used == list(range(21))


@pytest.mark.parametrize("threads", THREADS)
def test_an_early_end_waits_for_the_part_in_use(threads: int) -> None:
    begun, done = [], []

    def use(part: ParsedPart) -> None:
        begun.append(part)
        time.sleep(0.02)
        done.append(part)

    steps = in_turn(Numbers(10_000), threads, use)
    next(steps)
    steps.close()
    assert len(begun) == len(done)
    time.sleep(0.05)
    assert len(begun) == len(done) < 10_000


class Halves(Slow):
    """A parser whose chunks come in two parts."""

    def parse(self, chunk: Chunk, start: Place | None = None, *, tolerate: int = 0) -> ParsedPart:
        part = super().parse(chunk, start, tolerate=tolerate)
        if start is not None:
            return part._replace(batch=part.batch._replace(labels=part.batch.labels + np.float32(0.5)))
        return part._replace(stop=Place(0, chunk.start.offset, chunk.start.line + 1))


class Rests:
    """Uses parts and leaves something to be done, which must be done in order and alone."""

    def __init__(self, trouble: float = -1) -> None:
        self.used: list[float] = []
        self.done: list[float] = []
        self._alone, self._trouble = threading.Lock(), trouble

    def use(self, part: ParsedPart) -> Callable[[], None]:
        labels = part.batch.labels
        self.used.append(float(labels[0]))
        return lambda: self._finish(float(labels[0]))

    def _finish(self, number: float) -> None:
        assert self._alone.acquire(blocking=False)
        time.sleep(0.0005)
        self._alone.release()
        if number == self._trouble:
            raise DataError("found trouble in what was left")
        assert number in self.used
        self.done.append(number)


@pytest.mark.parametrize("parser", [Slow, Halves])
@pytest.mark.parametrize("threads", THREADS)
def test_what_is_left_of_parts_is_done_in_order(threads: int, parser: Callable[[], Slow]) -> None:
    rests = Rests()
    for _ in Parts(Numbers(60), parser, tolerate=lambda: 0, threads=threads).use_in_turn(rests.use):
        pass
    parts = 1 if parser is Slow else 2
    assert rests.used == rests.done == [number / parts for number in range(60 * parts)]


@pytest.mark.parametrize("threads", THREADS[1:])
def test_what_is_left_of_a_part_is_done_while_the_next_is_in_use(threads: int) -> None:
    second_in_use, first_done = threading.Event(), threading.Event()

    def finish() -> None:
        assert second_in_use.wait(60)
        first_done.set()

    def use(part: ParsedPart) -> Callable[[], None] | None:
        number = int(part.batch.labels[0])
        if number == 1:
            second_in_use.set()
            assert first_done.wait(60)
        return finish if number == 0 else None

    for _ in in_turn(Numbers(3), threads, use):
        pass
    assert first_done.is_set()


@pytest.mark.parametrize("threads", THREADS)
def test_nothing_is_left_of_what_was_used_before_an_early_end(threads: int) -> None:
    rests = Rests()
    steps = in_turn(Numbers(10_000), threads, rests.use)
    next(steps)
    steps.close()
    assert rests.used == rests.done == list(range(len(rests.used)))
    assert len(rests.used) < 10_000


@pytest.mark.parametrize("threads", THREADS)
def test_nothing_is_left_of_what_was_used_before_an_error(threads: int) -> None:
    rests = Rests()

    def use(part: ParsedPart) -> Callable[[], None]:
        if part.batch.labels[0] == 20:
            raise DataError("found trouble in use")
        return rests.use(part)

    with pytest.raises(DataError, match="found trouble in use"):
        list(in_turn(Numbers(60), threads, use))
    assert rests.used == rests.done == list(range(20))


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_in_what_was_left_comes_out(threads: int) -> None:
    rests = Rests(trouble=20)
    with pytest.raises(DataError, match="found trouble in what was left"):
        list(in_turn(Numbers(60), threads, rests.use))
    assert rests.done[:20] == list(range(20))
    assert len(rests.used) <= 21 + threads + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupt_in_the_one_who_uses_the_parts(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "0.svm"
    path.write_bytes(example_text(300))

    def use() -> None:
        for count, _ in enumerate(read_batches([str(path)], slots=512, threads=threads)):
            if count == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_reader_can_be_closed(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "0.svm"
    path.write_bytes(example_text(300))
    stream = Stream([str(path)], Form(name="auto"))
    reader = BatchReader(stream, Reading(), slots=512, threads=threads)
    next(reader)
    reader.close()
    with pytest.raises(StopIteration):
        next(reader)


WAITING = """
import sys, threading
from lessram.data.reader import read_batches
reader = read_batches(["-"], slots=512, format="svmlight", threads=2)
try:
    print("ready", flush=True)
    next(reader)
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), flush=True)
"""


def test_threads_that_wait_for_a_pipe_do_not_keep_the_process_alive() -> None:
    command = [sys.executable, "-c", WAITING]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipe, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)  # so that threads wait, usually
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)  # its standard input stays open all the time
        finally:
            process.kill()
        assert process.stdout.read().startswith(b"interrupted")
        assert process.stderr.read() == b""
        assert process.returncode == 0


UNFINISHED = """
import sys
from lessram import read_batches
reader = read_batches([sys.argv[1]], slots=1 << 12, threads=2)
batch, place = next(reader)
print(batch.rows > 0)
raise RuntimeError("a slip in somebody's script")
"""


def test_a_script_that_ends_in_the_middle_of_a_file_ends(tmp_path):
    """The reader is closed while Python shuts down, when its threads do not run any more."""
    (tmp_path / "data.svm").write_bytes(b"1 3:1 5:1\n0 4:1\n" * 300_000)
    command = [sys.executable, "-c", UNFINISHED, str(tmp_path / "data.svm")]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout) == (1, "True\n")
    assert ended.stderr.endswith("RuntimeError: a slip in somebody's script\n")
