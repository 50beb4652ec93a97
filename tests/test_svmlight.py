"""The svmlight parser against a plain one, on good lines, broken lines and random bytes."""

from __future__ import annotations

import ctypes
import mmap
import random
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference_svmlight import read_lines

from lessram.data.delimiters import WINDOW
from lessram.data.parsing import REPORTS, Parsed, RowBuffers, make_rules
from lessram.data.source import Chunk, Place
from lessram.data.svmlight import parse
from lessram.data.text import PADDING

GUARD = 0xA5  # stands behind the columns, and must never change


class Guarded:
    """Memory between two pages that nobody may touch: a read or write outside it ends the process."""

    def __init__(self, size: int) -> None:
        self.pages = -(-size // mmap.PAGESIZE)
        self.memory = mmap.mmap(-1, (self.pages + 2) * mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for page in (0, self.pages + 1):
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page * mmap.PAGESIZE), mmap.PAGESIZE, 0)

    def array(self, size: int, *, at_end: bool) -> np.ndarray:
        last = (self.pages + 1) * mmap.PAGESIZE
        return np.frombuffer(self.memory, np.uint8, size, last - size if at_end else mmap.PAGESIZE)


guarded = Guarded(1 << 16)


def chunk_of(text: bytes, *, at_end: bool = True) -> Chunk:
    """The text with its padding, at the end or at the start of the memory that may be touched."""
    size = len(text) + PADDING
    padded = guarded.array(size, at_end=at_end) if size <= 1 << 16 else np.empty(size, np.uint8)
    padded[:] = 0
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    return Chunk(padded, len(text), "x.svm", Place(), Place())


def parse_text(text: bytes, *, slots: int = 1000, tolerate: int = 10**9, **choices: object) -> Parsed:
    rules = make_rules(slots, **choices)  # type: ignore[arg-type]
    at_end = len(text) % 8 != 0
    return parse(chunk_of(text, at_end=at_end), RowBuffers(rules), rules, tolerate=tolerate)


def rows_of(parsed: Parsed) -> list[tuple[bytes, list[int], bytes]]:
    batch = parsed.batch
    values = np.ones(batch.features, np.float32) if batch.values is None else batch.values
    spans = [slice(*batch.indptr[row : row + 2]) for row in range(batch.rows)]
    return [
        (label.tobytes(), batch.slots[span].tolist(), values[span].tobytes())
        for label, span in zip(batch.labels, spans, strict=True)
    ]


def check(text: bytes, *, slots: int = 1000, hash: str = "auto", hash_seed: int = 0, labels: str = "binary") -> Parsed:
    """Everything that the parser says is what the plain one says."""
    parsed = parse_text(text, slots=slots, hash=hash, hash_seed=hash_seed, labels=labels)
    rows, bad, hashed = read_lines(text, slots=slots, hash=hash, seed=hash_seed, labels=labels)
    assert rows_of(parsed) == [(y.tobytes(), ids, np.array(x, np.float32).tobytes()) for y, ids, x in rows]
    assert (parsed.bad, parsed.hashed) == (len(bad), hashed)
    places = [f"x.svm:{line}" for line in bad]
    described = places if len(places) <= REPORTS else places[: REPORTS - 1] + places[-1:]
    assert [report.place for report in parsed.reports] == described
    ones = all(value == 1 for _, _, values in rows for value in values)
    assert (parsed.batch.values is None) == ones
    return parsed


# ---------------------------------------------------------------- lines by hand


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"1",
        b"1\n",
        b"0 3:1",
        b"-1 3:1 5:0.25 7:1e-3\n+1 4:-2\n",
        b"1 1 2 3\n",
        b"  1   3:1\t\t5:2  \r\n\r\n# only a comment\n0 7:1 # 8:1 abc\n",
        b"1 3:1#9:9\n1#\n#\n",
        b"1 qid:7 3:1 qid:abc 5:1\n",
        b"1.0 3:1\n-1e0 3:1\n0.0 3:1\n+0 3:1\n-0 3:1\n10e-1 3:1\n",
        b"1 00000000000000000000000000000003:1\n",
        b"1 3:.5 4:5. 5:+.5 6:-5.e1 7:0 8:-0\n",
        b"1 18446744073709551615:1 18446744073709551614:1\n",
        b"1 12345678:1 123456789:1 1234567890123456:1 12345678901234567:1 9999999999999999999:1\n",
        b"1 3:12345678 4:1234567.8 5:.12345678 6:12345678. 7:123456789 8:0.123456789\n",
        b"1 3:1\x0b4:1\x0c5:1\r6:1\n",
        b"0 " + b" ".join(b"%d:1" % i for i in range(500)) + b"\n1 " + b"9" * 500 + b":1\n",
        b"1 3:" + b"0" * 300 + b"1 4:1." + b"0" * 300 + b"\n",
    ],
)
@pytest.mark.parametrize("hash", ["auto", "all", "none"])
def test_lines(text: bytes, hash: str) -> None:
    check(text, hash=hash)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"7 3:1", "found '7' as the label, expected 0, 1, -1 or +1"),
        (b"abc 3:1", "found 'abc' as the label, expected 0, 1, -1 or +1"),
        (b"1x 3:1", "found '1x' as the label, expected 0, 1, -1 or +1"),
        (b"nan 3:1", "found 'nan' as the label, expected 0, 1, -1 or +1"),
        (b"1:1 3:1", "found '1:1' as the label, expected 0, 1, -1 or +1"),
        (b"1 17:abc", "found 'abc' as the value of feature 17, expected a finite number"),
        (b"1 17:", "found nothing as the value of feature 17, expected a finite number"),
        (b"1 17:nan 2:1", "found 'nan' as the value of feature 17, expected a finite number"),
        (b"1 17:-inf", "found '-inf' as the value of feature 17, expected a finite number"),
        (b"1 17:0x10", "found '0x10' as the value of feature 17, expected a finite number"),
        (b"1 17:1.2.3", "found '1.2.3' as the value of feature 17, expected a finite number"),
        (b"1 17:1e", "found '1e' as the value of feature 17, expected a finite number"),
        (b"1 17:1:2", "found '1:2' as the value of feature 17, expected a finite number"),
        (b"1 17:1_0", "found '1_0' as the value of feature 17, expected a finite number"),
        (b"1 17:1\0 3:1", "found '1\\x00' as the value of feature 17, expected a finite number"),
        (b"1 17:1e39", "found '1e39' as the value of feature 17, expected one that float32 can hold, at most 3.4e38"),
        (b"1 -3:1", "found '-3' as the index of a feature, expected a whole number, not negative"),
        (b"1 3.5:1", "found '3.5' as the index of a feature, expected a whole number, not negative"),
        (b"1 a:1", "found 'a' as the index of a feature, expected a whole number, not negative"),
        (b"1 :1", "found nothing as the index of a feature, expected a whole number, not negative"),
        (b"1 5x", "found '5x' as the index of a feature, expected a whole number, not negative"),
        (b"1 \xff:1", "found '\\\\xff' as the index of a feature, expected a whole number, not negative"),
        (
            b"1 18446744073709551616:1",
            "found '18446744073709551616' as the index of a feature, expected a number below 2^64",
        ),
        (b"1 3:" + b"x" * 99, f"found '{'x' * 40}'... as the value of feature 3, expected a finite number"),
    ],
)
def test_messages(line: bytes, message: str) -> None:
    good = b"1 2:1\n"
    parsed = check(good * 2 + line + b"\n" + good)
    assert [tuple(report) for report in parsed.reports] == [("x.svm:3", message)]


def test_a_large_index_without_hashing() -> None:
    parsed = check(b"1 999:1\n1 1000:1\n", hash="none")
    assert parsed.reports[0] == (
        "x.svm:2",
        "found '1000' as the index of a feature, expected one below 1000, the number of slots",
    )


def test_real_labels() -> None:
    parsed = check(b"2.5 3:1\n-1 3:1\n-0 3:1\n1e-3\nnan 3:1\n1e99 3:1\n", labels="real")
    assert parsed.batch.labels.tolist() == pytest.approx([2.5, -1, 0, 1e-3])
    assert parsed.reports[0].message == "found 'nan' as the label, expected a finite number"


def test_it_stops_behind_the_tolerated_lines() -> None:
    text = b"1 2:1\nbad\nbad\nbad\n1 3:1\n"
    assert parse_text(text, tolerate=0).bad == 1
    assert parse_text(text, tolerate=1).bad == 2
    assert parse_text(text, tolerate=3).batch.rows == 2


def test_many_bad_lines_are_counted_and_a_few_described() -> None:
    parsed = check(b"1 2:1\nbad\n" * 500)
    assert parsed.bad == 500
    assert parsed.reports[-1].place == "x.svm:1000"


@pytest.mark.parametrize(("slots", "dtype"), [(2**32, np.uint32), (2**32 + 1, np.uint64)])
def test_slots_have_the_smallest_type(slots: int, dtype: type) -> None:
    parsed = check(b"1 4294967295:1 4294967296:1 18446744073709551615:2\n", slots=slots, hash_seed=5)
    assert parsed.batch.slots.dtype == dtype


def test_buffers_are_used_again() -> None:
    rules = make_rules(100)
    buffers = RowBuffers(rules)
    first = parse(chunk_of(b"1 3:1 5:2\n" * 50), buffers, rules)
    second = parse(chunk_of(b"0 7:1\n"), buffers, rules)
    assert np.shares_memory(first.batch.slots, second.batch.slots)
    assert rows_of(second) == rows_of(parse_text(b"0 7:1\n", slots=100))


# ---------------------------------------------------------------- numbers


def hostile_numbers(count: int, seed: int) -> list[str]:
    """Numbers that are hard to round: near the middle of two floats, long, tiny, huge."""
    chance, numbers = random.Random(seed), []
    getcontext().prec = 200
    for _ in range(count):
        low = np.frombuffer(chance.randbytes(4), np.float32)[0]
        if not np.isfinite(low):
            continue
        high = np.nextafter(low, np.float32(3e38))
        middle = float(low) / 2 + float(high) / 2  # a double: the tie of rounding to float32
        exact = (Decimal(middle) + Decimal(float(np.nextafter(middle, chance.choice([-1e39, 1e39]))))) / 2
        nudge = chance.choice([Decimal(0), Decimal(1), Decimal(-1)]) * exact * Decimal(10) ** -chance.randint(16, 60)
        digits = "".join(chance.choices("0123456789", k=chance.choice([1, 7, 8, 9, 16, 17, 19, 20, 21, 40])))
        point = chance.randint(0, len(digits))
        numbers += [
            f"{exact + nudge}",
            f"{exact + nudge:.{chance.randint(8, 60)}e}",
            f"{middle!r}",
            f"{low:.9g}",
            f"{digits[:point]}.{digits[point:]}",
            f"{digits}e{chance.randint(-80, 45)}",
            f"-{digits[:point]}.{digits[point:]}E{chance.randint(-50, 40):+}",
            f"{chance.gauss(0, 1):.{chance.randint(0, 17)}g}",
            f"{chance.uniform(-10, 10):.{chance.randint(0, 10)}f}",
        ]
    return numbers


def test_numbers_are_those_of_python() -> None:
    numbers = hostile_numbers(3000, seed=42)
    lines = [" ".join(f"{i}:{s}" for i, s in enumerate(numbers[k : k + 10])) for k in range(0, len(numbers), 10)]
    check("".join(f"1 {line}\n" for line in lines).encode())
    check("".join(f"{number} 3:1\n" for number in numbers).encode(), labels="real")


def test_zeros_and_exponents_of_any_length_cancel() -> None:
    many = 1_100_000
    words = [f"0.{'0' * many}1e{many + 1}", f"1{'0' * many}e-{many}", f"1{'0' * many}e-{10 * many}", f"1e{'9' * 30}"]
    part = check(f"1 3:{words[0]} 4:{words[1]} 5:{words[2]}\n1 3:{words[3]}\n".encode())
    assert (part.batch.slots.tolist(), part.batch.values, part.bad) == ([3, 4], None, 1)


def test_numbers_that_only_long_arithmetic_decides() -> None:
    """A double's own tie, just beside a float32's tie: 19 digits cannot tell which side it is on."""
    tie = Decimal(1) + Decimal(2) ** -24  # the middle of 1 and the next float32
    above = tie + Decimal(2) ** -53  # the middle of that double and the next one
    getcontext().prec = 100
    words = [str(above), str(above + Decimal(10) ** -60), str(above - Decimal(10) ** -60)]
    parsed = check("".join(f"1 1:{word} 2:{word} 3:1\n{word} 1:1\n" for word in words).encode(), labels="real")
    assert len({value.tobytes() for value in parsed.batch.values}) > 1
    largest = str(Decimal(2) ** 128 - Decimal(2) ** 103 - Decimal(2) ** 74) + "." + "0" * 30 + "1"
    check(f"1 1:{largest} 2:1\n1 2:1\n1 1:{words[0]}qid:5\n{words[0]}x 1:1\n1 1:{words[0]}.5\n".encode(), labels="real")


# ---------------------------------------------------------------- anything at all

indexes = st.one_of(st.integers(0, 1100), st.integers(0, 2**65), st.integers(-5, 5)).map(str)
values = st.one_of(
    st.sampled_from(
        ["1", "1", "0", "2", "0.5", "-1", "nan", "1e5", "", "+1", ".5", "5.", "1e-50", "1e50", "0x1", "--1"]
    ),
    st.floats(width=32).map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.6g}"),
    st.decimals(-100, 100, places=25).map(str),
)
words = st.one_of(
    st.tuples(indexes, values).map(":".join), indexes, st.sampled_from(["qid:3", "#", ":", "#c 1:1", "a:b"])
)
separators = st.sampled_from([" ", " ", " ", " ", "  ", "\t", " \r"])
marks = st.sampled_from(["0", "1", "-1", "+1", "1.0", "2", "", "#", " 1", "x"])
lines = st.builds(
    lambda mark, parts, end: mark + "".join(blank + word for blank, word in parts) + end,
    marks,
    st.lists(st.tuples(separators, words), max_size=30),
    st.sampled_from(["\n", "\n", "\n", " \n", "\r\n", "\n\n", ""]),
)
texts = st.lists(lines, max_size=12).map(lambda parts: "".join(parts).encode())
alphabet = st.sampled_from(list(b"0123456789 :\n.-+e#qid\t\r\x00\xff"))
choices = st.fixed_dictionaries(
    {
        "slots": st.sampled_from([1, 7, 1000, 2**20, 2**40]),
        "hash": st.sampled_from(["auto", "all", "none"]),
        "hash_seed": st.integers(0, 3),
        "labels": st.sampled_from(["binary", "real"]),
    }
)


@settings(max_examples=400, deadline=None)
@given(texts, choices)
def test_lines_made_of_words(text: bytes, options: dict) -> None:
    check(text, **options)


@settings(max_examples=400, deadline=None)
@given(texts, st.lists(st.tuples(st.integers(0, 2000), alphabet), max_size=8), choices)
def test_lines_with_bytes_changed(text: bytes, changes: list[tuple[int, int]], options: dict) -> None:
    mutated = bytearray(text)
    for place, byte in changes:
        if mutated:
            mutated[place % len(mutated)] = byte
    check(bytes(mutated), **options)


# Features of one form behind each other, as most files have them: these are read several at a time.
regular_indexes = st.integers(0, 8).flatmap(lambda digits: st.integers(0, 10**digits)).map(str)
regular_values = {
    "digits": st.integers(0, 9).map(str),
    "decimals": st.decimals(-10, 10, allow_nan=False, places=8).map(lambda x: f"{x:.6f}"),
    "numbers": st.decimals(-(10**5), 10**5, allow_nan=False, places=2).map(str),
    "whole": st.integers(-10, 10**8).map(str),
    "short": st.tuples(st.floats(-1, 1), st.integers(1, 9)).map(lambda pair: f"{pair[0]:.{pair[1]}f}"),
}
regular_parts = st.sampled_from(sorted(regular_values)).flatmap(
    lambda form: st.lists(st.tuples(regular_indexes, regular_values[form]).map(":".join), max_size=40).map(" ".join)
)
regular_lines = st.lists(regular_parts, max_size=3).map(lambda parts: " ".join(["1", *parts]) + "\n")
regular_texts = st.lists(regular_lines, max_size=6).map(lambda parts: "".join(parts).encode())


@settings(max_examples=300, deadline=None)
@given(regular_texts, st.lists(st.tuples(st.integers(0, 4000), alphabet), max_size=3), choices)
def test_regular_lines_with_bytes_changed(text: bytes, changes: list[tuple[int, int]], options: dict) -> None:
    test_lines_with_bytes_changed.hypothesis.inner_test(text, changes, options)


def test_a_feature_that_breaks_a_row_of_equals_anywhere() -> None:
    breaks = [
        "7",
        "7:",
        ":7",
        "7:0",
        "7:10",
        "7:.5",
        "7:5.",
        "7:-0.0",
        "7:0.123456789",
        "123456789:1",
        "7:1\t8:1",
        "",
        "x",
    ]
    for usual in ("31:1", "4:2", "123456:0.25", "5:-1.5", "6:12", "7:-317.25", "8:12345678", "9:.5"):
        for word in breaks:
            for place in range(12):
                check(" ".join(["1", *[usual] * place, word, *[usual] * 12, "9:1\n"]).encode())


@pytest.mark.parametrize("usual", ["1", "0.12345678", "-2.5", "12", "-317.25"])
def test_lines_longer_than_a_window_of_delimiters(usual: str) -> None:
    """Windows end at other bytes of a feature in every line."""
    chance = random.Random(3)
    for length in (WINDOW // 64, 4 * WINDOW):
        words = [f"{chance.randrange(10 ** chance.randrange(1, 8))}:{usual}" for _ in range(4 * WINDOW // 16)]
        lines = ["1 " + " ".join(words[i : i + length]) + "\n" for i in range(0, len(words), length)]
        check("".join(lines).encode())
    for blanks in range(70):
        long = b"1 " + b" ".join([b"3:" + usual.encode()] * 9 + [b" " * blanks + b"4:1#" + b"5" * 2 * WINDOW])
        check(long + b"\n0 6:1 7:" + usual.encode())


def test_windows_of_one_text_say_nothing_of_the_next() -> None:
    rules = make_rules(1000)
    buffers = RowBuffers(rules)
    for word in (b"3:1", b"14:0.5", b"7:25", b"8:1"):
        text = b"".join(b"1" + b" " * blanks + b" ".join([word] * 12) + b"\n" for blanks in range(1, 9))
        assert rows_of(parse(chunk_of(text), buffers, rules)) == rows_of(parse_text(text))


@settings(max_examples=300, deadline=None)
@given(st.lists(alphabet, max_size=300).map(bytes), choices)
@example(b"1 " + b"1" * 62 + b":1", {})
@example(b"1 1:" + b"1" * 62, {})
def test_bytes_of_the_alphabet(text: bytes, options: dict) -> None:
    check(text, **options)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=500), choices)
def test_any_bytes(text: bytes, options: dict) -> None:
    check(text, **options)


@settings(max_examples=100, deadline=None)
@given(texts, st.booleans())
def test_nothing_is_read_or_written_outside(text: bytes, at_end: bool) -> None:
    rules = make_rules(1000)
    chunk = chunk_of(text, at_end=at_end)
    buffers = RowBuffers(rules)
    columns = [np.full(len(column) + 16, GUARD, column.dtype) for column in buffers.fit(chunk.size // 2 + 1)]
    buffers.columns = type(buffers.columns)(*(column[:-16] for column in columns))
    parse(chunk, buffers, rules, tolerate=10**9)
    assert all((column[-16:] == GUARD).all() for column in columns)
    assert chunk.text[chunk.size] == ord("\n")
    assert not chunk.text[chunk.size + 1 :].any()
