"""Vowpal Wabbit text against Vowpal Wabbit itself, and against a slow parser in plain Python."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import real_data
from guarded import guarded_chunk
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_table import products
from sklearn.utils import murmurhash3_32
from texts import mutated, rows_of

from lessram.data import rows as rows_module
from lessram.data.lines import chunk_of
from lessram.data.source import ChunkReader, TextBuffer
from lessram.data.vw import VwOptions, VwParser
from lessram.errors import SpecError

compiling = settings(deadline=None)

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


# ------------------------------------------------------------------ the slow parser


class Bad(Exception):
    pass


def slow_hash(name: bytes, seed: int, hash_all: bool) -> int:
    if re.fullmatch(rb"\d*", name) and not hash_all:
        return (int(name or b"0") + seed) % 2**32
    return murmurhash3_32(name, seed, positive=True)


def slow_number(word: bytes) -> np.float32:
    with np.errstate(over="ignore"):
        value = np.float32(float(word)) if NUMBER.fullmatch(word) else np.float32(np.nan)
    if not np.isfinite(value):
        raise Bad
    return value


def slow_head(head: bytes) -> tuple[float, float]:
    head = head.split(b"\t", 1)[-1]
    words = [word for word in head.split(b" ") if word]
    if words and (not head.endswith(b" ") or words[-1].startswith(b"'")):
        words.pop()
    numbers = [slow_number(word) for word in words]
    if len(numbers) > 3:
        raise Bad
    label, weight, _ = numbers + [math.nan, 1.0, 0.0][len(numbers) :]
    if numbers and label not in (0, 1, -1):
        raise Bad
    if weight < 0:
        raise Bad
    return max(label, 0.0) if numbers else math.nan, weight


def slow_value(text: bytes) -> tuple[bytes, bytes, bytes]:
    """The value that begins behind a colon: as a number, as a word, and the text behind it."""
    text = text.lstrip(b" \t")
    match = NUMBER.match(text)
    if match:
        rest = text[match.end() :]
        if rest and rest[:1] not in (b" ", b"\t", b"|"):
            raise Bad
        return match[0], b"", rest
    word = re.match(rb"[^\x00-\x20]*", text)[0]
    if not word or word.startswith(b"|"):
        raise Bad
    if re.fullmatch(rb"[+-]?(inf|nan|infinity|nan.{5}|inf.{5})", word, re.IGNORECASE | re.DOTALL):
        raise Bad
    return b"", word, text[len(word) :]


def slow_line(line: bytes, hash_all: bool = False) -> tuple[float, float, list[tuple[int, np.float32]]] | None:
    """Label, weight and features of a line without its end; None for an empty one."""
    line = line.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf")
    if not line:
        return None
    head, bar, body = line.partition(b"|")
    label, weight = slow_head(head)
    features, text = [], bar + body
    seed, scale, nameless = 0, np.float32(1), 0
    while text:
        if text[:1] == b"|":
            name = re.match(rb"[^\x00-\x20:|]*", text[1:])[0]
            text = text[1 + len(name) :]
            seed, scale, nameless = slow_hash(name, 0, hash_all) if name else 0, np.float32(1), 0
            if text[:1] == b":":
                if not name:
                    raise Bad
                number, _, text = slow_value(text[1:])
                if not number:
                    raise Bad
                scale = slow_number(number)
            if text and text[:1] not in (b" ", b"\t", b"|"):
                raise Bad
        elif text[:1] in (b" ", b"\t"):
            text = text[1:]
        else:
            name = re.match(rb"[^\x00-\x20:|]*", text)[0]
            text = text[len(name) :]
            if text[:1] != b":":
                if not name:
                    raise Bad
                features.append((slow_hash(name, seed, hash_all), scale))
                continue
            number, word, text = slow_value(text[1:])
            hashed = slow_hash(name, seed, hash_all)
            if word:
                features.append((slow_hash(word, hashed, hash_all), np.float32(1)))
                continue
            with np.errstate(over="ignore"):
                value = slow_number(number) * scale
            if not np.isfinite(value):
                raise Bad
            if not name:
                hashed = (seed + nameless) % 2**32
                nameless += 1
            features.append((hashed, value))
    return label, weight, [(hashed, value) for hashed, value in features if value != 0]


def slow_parse(text: bytes, slots: int, hash_all: bool = False):
    good, bad, unlabelled = [], 0, 0
    for line in text.removesuffix(b"\n").split(b"\n"):
        try:
            row = slow_line(line, hash_all)
        except Bad:
            bad += 1
            continue
        if row is None:
            continue
        if math.isnan(row[0]):
            unlabelled += 1
        else:
            good.append((row[0], row[1], [(hashed % slots, value) for hashed, value in row[2]]))
    return good, bad, unlabelled


# ------------------------------------------------------------------ ours


def ours(text: bytes, slots: int = 2**18, tolerate: int = 10**9, **options):
    return VwParser(slots, VwOptions(**options)).parse(guarded_chunk(text, "clicks.vw"), tolerate=tolerate)


def assert_as_slow(text: bytes, slots: int = 2**18, **options):
    part = ours(text, slots, **options)
    assert (rows_of(part.batch), part.bad, part.unlabelled) == slow_parse(text, slots, options.get("hash") == "all")


LINES = [
    b"1 |a x y z",
    b"1 |a one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen 17",
    b"-1 |a x:0.5 y:-2.25e-1 |b z",
    b"0 2.5 |a x",
    b"+1 2 0.5 'tag|a x",
    b"1 'tag |a x",
    b"1 tag|a x",
    b"1|a x",
    b"|a x",
    b"1 | x y |  z",
    b"1 |a:2 x y:0.5 |b w",
    b"1 |a x:0 y",
    b"1 |a x: 1 y:  b z:    0 |b: 2 w",
    b"1 |a:0 x |b y",
    b"1 |a :3 :4 |b :5",
    b"1 |a city:rome :rome x:ab:34",
    b"1 |a 12 0012 123456789012 99999999999999999999999 1x",
    b"1 |12 12",
    b"1\t1 |a x",
    b"junk\t1 |a x",
    b"1 |a\tx\ty",
    b"1 |a|b|c x",
    b"1 ",
    b"1",
    b"",
    b"1 |",
    b"1 ||",
    b"1 |a x|b y:2|c z",
    b"1 |a x\r",
    b"\r",
    b"\xef\xbb\xbf1 |a x",
    b"1 |a " + b"x" * 200 + b" y",
    b"1 |a x:1.00000005960464477539062500000000001 y",
    b"1 |a # x # 1 |b y",
    "1 |도시 서울 x:0.25".encode(),
]
BAD_LINES = [
    b"7 |a x",
    b"nan |a x",
    b"inf |a x",
    b"1x |a x",
    b"yes |a x",
    b"1 -1 |a x",
    b"1 x |a x",
    b"1 1 x |a x",
    b"1 1 1 1 |a x",
    b"1 |a x:1x",
    b"1 |a x:nan",
    b"1 |a x:-inf",
    b"1 |a x:1e99",
    b"1 |a x:1e",
    b"1 |a x:12:34",
    b"1 |a x:",
    b"1 |a x: ",
    b"1 |a x: |b",
    b"1 |a x:|b",
    b"1 |:2 x",
    b"1 |a:x y",
    b"1 |a: y",
    b"1 |a: ",
    b"1 |a:1e30 x:1e30",
    b"1 |a x\x01y",
    b"1 |a x\0",
    b"1 |a x\ry",
]


@pytest.mark.parametrize("line", LINES, ids=repr)
@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("hash", ["strings", "all"])
def test_good_lines(line, end, hash):
    part = ours(line + end, hash=hash)
    assert part.bad == 0, part.reports
    assert_as_slow(line + end, hash=hash)


@pytest.mark.parametrize("line", BAD_LINES, ids=repr)
def test_bad_lines_are_skipped_and_named(line):
    text = b"1 |a x\n" + line + b"\n0 |a y\n"
    part = ours(text)
    assert part.bad == 1
    assert part.batch.rows == 2
    assert part.reports[0].place == "clicks.vw:2"
    assert part.reports[0].message.startswith("found ")
    assert "expected" in part.reports[0].message
    assert_as_slow(text)


def test_messages_say_what_was_found_and_expected():
    assert ours(b"7 |a x\n").reports[0].message == "found '7' as the label, expected 0, 1, -1 or +1"
    assert "found '1x' as a value, expected a finite number or a word" in ours(b"1 |a b:1x c\n").reports[0].message


def test_gives_up_behind_the_first_bad_line_that_is_not_tolerated():
    chunk = chunk_of(b"1 |a x\n2 |a x\n1 |a x\n2 |a x\n1 |a y\n")
    part = VwParser(64).parse(chunk, tolerate=0)
    assert (part.bad, part.batch.rows, part.stop.line) == (1, 1, 3)
    part = VwParser(64).parse(chunk, tolerate=2)
    assert (part.bad, part.batch.rows, part.stop) == (2, 3, chunk.stop)


def test_values_and_weights_are_absent_where_all_are_one():
    assert ours(b"1 |a x y:1\n").batch.values is None
    assert ours(b"1 |a x y:1\n").batch.weights is None
    assert ours(b"1 2 |a x y:1\n").batch.weights.tolist() == [2]


def test_examples_without_label_are_kept_for_prediction():
    part = VwParser(64, keep_unlabelled=True).parse(chunk_of(b"|a x\n1 |a x\n"))
    assert part.unlabelled == 1
    assert np.isnan(part.batch.labels[0])
    assert part.batch.labels[1] == 1


def test_real_labels():
    parser = VwParser(64, labels="real")
    part = parser.parse(chunk_of(b"2.5 |a x\n-1 |a x\nnan |a x\n+1 |a x\n0 |a x\n-2 |a x\n"), tolerate=1)
    assert part.batch.labels.tolist() == [2.5, -1, 1, 0, -2]
    assert part.reports[0].message == "found 'nan' as the label, expected a finite number"


def test_a_base_is_counted():
    assert ours(b"1 1 0.5 |a x\n1 1 0 |a x\n").based == 1


@pytest.mark.parametrize("slots", [1, 1000, 2**18, 2**32])
def test_slots_of_any_number(slots):
    assert_as_slow(b"\n".join(LINES) + b"\n", slots)


def test_large_tables_get_wide_hashes():
    batch = ours(b"1 |a x y 17\n", 2**40).batch
    assert batch.slots.dtype == np.uint64
    assert (batch.slots < 2**40).all()
    assert (batch.slots[:2] > 2**32).any()


# ------------------------------------------------------------------ hostile text

token = st.one_of(
    st.sampled_from(b"| : \t \n \r\n 1 -1 0.5 't |a |b:2 x: 1e5".split(b" ")),
    st.just(b" "),
    st.binary(max_size=4),
    st.text("abcxyz0123456789:| .-+eE'", max_size=12).map(str.encode),
)


@settings(deadline=None, max_examples=500)
@given(st.lists(token, max_size=60).map(b"".join))
def test_any_bytes_are_read_as_by_the_slow_parser(text):
    assert_as_slow(text)


@settings(deadline=None, max_examples=500)
@given(mutated(LINES + BAD_LINES, b" |:\n\r\t'019.e-"))
def test_mutated_lines_are_read_as_by_the_slow_parser(text):
    assert_as_slow(text)


# Names behind each other, as most files have them: these are read several at a time.
word = st.one_of(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789_-.", min_size=1, max_size=17).map(str.encode),
    st.integers(0, 10**9).map(b"%d".__mod__),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)).map(lambda pair: b"%d:0.%d" % pair),
)
words = st.lists(st.one_of(word, *[st.sampled_from([b"the", b"w" * 15, b"x1", b"1x", b"quick"])] * 8), max_size=60)
rows_of_words = st.tuples(st.sampled_from([b"1 | ", b"-1 |name ", b"1 |n:0.5 ", b"1 |n:0 "]), words)


@settings(deadline=None, max_examples=300)
@given(st.lists(rows_of_words, max_size=5), st.sampled_from([b"\n", b" \n", b"\r\n"]), st.booleans(), st.data())
def test_rows_of_words_are_read_as_by_the_slow_parser(rows, end, hash_all, data):
    text = bytearray(b"".join(start + b" ".join(words) + end for start, words in rows))
    for _ in range(data.draw(st.integers(0, 3)) if text else 0):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from(b" |:\n\r\t'019.e-x"))
    assert_as_slow(bytes(text), hash="all" if hash_all else "strings")


# The same few namespaces again and again, which are not hashed again: "a", "q" and "1" share a place, "seven77" has a
# key and "eight888" none, weights and names of digits take their own way.
spaces = st.sampled_from(
    [b"a", b"q", b"1", b"aa", b"seven77", b"eight888", b"a:2", b"a:0", b"12", "도시".encode(), b""]
)
heads = st.sampled_from(
    [b"1 ", b"-1 ", b"0 ", b"+1 ", b"-0 ", b"+0 ", b"1", b"-1  ", b" 1 ", b"2 ", b"1. ", b"1 2 ", b""]
)
lines_of_spaces = st.tuples(heads, st.lists(spaces, min_size=1, max_size=4))


@settings(deadline=None, max_examples=300)
@given(st.lists(lines_of_spaces, max_size=12), st.sampled_from([b" x", b" x y", b"\tx", b"", b" "]), st.booleans())
def test_heads_and_namespaces_are_read_as_by_the_slow_parser(lines, behind, hash_all):
    text = b"".join(head + b"".join(b"|" + space + behind for space in spaces) + b"\n" for head, spaces in lines)
    assert_as_slow(text, hash="all" if hash_all else "strings")


@compiling
@given(st.lists(st.sampled_from(LINES + BAD_LINES), min_size=1, max_size=20), st.integers(0, 20))
def test_nothing_outside_the_room_is_written(lines, seed):
    """Rooms of every size: the kernel stops before its arrays end, and the guards behind them stay."""
    text = b"\n".join(lines) + b"\n"
    whole = rows_of(ours(text).batch)
    parser, chunk, found, place = VwParser(2**18), chunk_of(text), [], None
    parser._room.fit = lambda rows, features: None
    guarded = rows_module.Rows(
        *(
            np.full(size + 8, 77, dtype)
            for size, dtype in [(2, "f4"), (2, "f4"), (3, "i8"), (4 + seed, "u4"), (4 + seed, "f4")]
        )
    )
    parser._room.rows = rows_module.Rows(*(array[:-8] for array in guarded))
    parser._room.rows.indptr[0] = 0
    parser._room.grow = lambda rows, needed: False
    while place != chunk.stop:
        part = parser.parse(chunk, place, tolerate=10**9)
        found += rows_of(part.batch)
        place = part.stop
        assert all((array[-8:] == 77).all() for array in guarded)
    small = [row for row in whole if len(row[2]) <= 4 + seed]
    assert [row for row in found if len(row[2]) < 4] == [row for row in small if len(row[2]) < 4]


# ------------------------------------------------------------------ interactions, keep, ignore


TEXT = b"1 |a x y:2 |b z w:0.5 |a v |c 7\n-1 |b z |a x\n1 |c q\n"


@pytest.mark.parametrize("letters", ["ab", "ba", "aa", "abc", "aab", "abb", "aaa", "cc", "az"])
def test_products_are_those_of_their_definition(letters):
    plain, made = rows_of(ours(TEXT, 2**32).batch), rows_of(ours(TEXT, 2**32, interactions=(letters,)).batch)
    letters = "".join(sorted(letters)) if len(set(letters)) < len(letters) else letters
    for line, (_, _, before), (_, _, now) in zip(TEXT.splitlines(), plain, made, strict=True):
        groups = {c: [] for c in "abcz"}
        position = 0
        for part in line.decode().split("|")[1:]:
            count = len(part.split()) - 1
            groups[part[0]] += before[position : position + count]
            position += count
        same = [i > 0 and letters[i] == letters[i - 1] for i in range(len(letters))]
        assert now == before + products([groups[c] for c in letters], same)


def test_keep_and_ignore():
    assert ours(TEXT, keep="a").batch.features == 3 + 1
    assert ours(TEXT, ignore="a").batch.features == 3 + 1 + 1
    assert ours(TEXT, ignore="a", interactions=("ab",)).batch.features == 3 + 1 + 1
    assert ours(b"1 | x y |a z\n", ignore=" ").batch.features == 1


def test_bad_options_are_refused():
    with pytest.raises(SpecError, match="two or three groups"):
        VwParser(64, VwOptions(interactions=("a",)))
    with pytest.raises(SpecError, match="'strings' or 'all', got 'md5'"):
        VwParser(64, VwOptions(hash="md5"))
    with pytest.raises(SpecError, match=r"seed must be from 0 to 2\^32"):
        VwParser(64, VwOptions(seed=-1))


def test_large_products_come_in_several_batches(monkeypatch):
    monkeypatch.setattr(rows_module, "ENOUGH", 4096)
    text = b"".join(b"1 |a " + b" ".join(b"w%d" % (i * 37 + j) for j in range(40)) + b"\n" for i in range(30))
    chunk, parser, place, found = chunk_of(text), VwParser(2**20, VwOptions(interactions=("aa",))), None, []
    batches = 0
    while place != chunk.stop:
        part = parser.parse(chunk, place)
        assert part.batch.features <= 8192
        found += rows_of(part.batch)
        place, batches = part.stop, batches + 1
    monkeypatch.undo()
    assert batches > 5
    assert found == rows_of(ours(text, 2**20, interactions=("aa",)).batch)
    assert all(len(row[2]) == 40 + 40 * 41 // 2 for row in found)


def test_a_row_of_too_many_products_is_a_bad_line(monkeypatch):
    monkeypatch.setattr(rows_module, "ENOUGH", 1000)
    monkeypatch.setattr(rows_module, "MOST", 1000)
    chunk = chunk_of(b"1 |a x\n1 |a " + b" ".join(b"w%d" % j for j in range(60)) + b"\n1 |a y\n")
    parser = VwParser(64, VwOptions(interactions=("aa",)))
    before = parser.parse(chunk)
    after = parser.parse(chunk, before.stop, tolerate=1)
    assert (before.bad, before.batch.rows, before.stop.line) == (0, 1, 2)
    assert (after.bad, after.batch.rows, after.stop) == (1, 1, chunk.stop)
    assert after.reports[0].place == "memory:2"
    assert "too many products" in after.reports[0].message


@pytest.mark.parametrize("end", [b"", b"\n", b"\n1 |a y\n"])
def test_products_that_are_not_finite_make_a_bad_line(end):
    part = ours(b"1 |a x:1e30 y:1e30" + end, interactions=("aa",))
    assert part.bad == 1
    assert part.reports[0].message.startswith("found '1 |a x:1e30 y:1e30' whose products")


# ------------------------------------------------------------------ Vowpal Wabbit itself


def vw_counts(text: bytes, folder: Path, *arguments: str) -> tuple[int, int]:
    """The number of examples and of features that Vowpal Wabbit reports."""
    pytest.importorskip("vowpalwabbit", reason="the vowpalwabbit package is not installed")
    path = folder / "data.vw"
    path.write_bytes(text)
    command = [sys.executable, "-m", "vowpalwabbit", "-d", str(path), "--noconstant", *arguments]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    report = output.stdout + output.stderr
    examples = re.search(r"number of examples = (\d+)", report)
    features = re.search(r"total feature number = (\d+)", report)
    return int(examples[1]), int(features[1])


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--hash", "all"], {"hash": "all"}),
        (["-q", "ab"], {"interactions": ("ab",)}),
        (["-q", "aa", "--cubic", "abb"], {"interactions": ("aa", "abb")}),
        (["-q", "ab", "-q", "ba"], {"interactions": ("ab", "ba")}),
        (["--ignore", "a"], {"ignore": "a"}),
        (["--keep", "b"], {"keep": "b"}),
    ],
)
def test_counts_are_those_that_vowpal_wabbit_reports(tmp_path, arguments, options):
    text = b"\n".join(LINES) + b"\n" + TEXT
    part = VwParser(2**18, VwOptions(**options), keep_unlabelled=True).parse(chunk_of(text))
    assert (part.batch.rows, part.batch.features) == vw_counts(text, tmp_path, *arguments)


@pytest.mark.parametrize("seed", [0, 17])
def test_slots_are_those_of_vowpal_wabbit(seed):
    vowpalwabbit = pytest.importorskip("vowpalwabbit", reason="the vowpalwabbit package is not installed")
    workspace = vowpalwabbit.Workspace(f"--quiet -b 24 --noconstant --hash_seed {seed}")
    for line in LINES:
        if not line or line == b"\r" or line.startswith(b"\xef") or "도시".encode() in line:
            continue
        example = workspace.parse(line.decode() + "\n")
        example = example[0] if isinstance(example, list) else example
        theirs = sorted((slot % 2**24, value) for slot, value in example.iter_features())
        workspace.finish_example(example)
        batch = VwParser(2**24, VwOptions(seed=seed), keep_unlabelled=True).parse(chunk_of(line)).batch
        mine = sorted(rows_of(batch)[0][2])
        assert [slot for slot, _ in mine] == [slot for slot, _ in theirs], line
        assert np.allclose([x for _, x in mine], [x for _, x in theirs], rtol=1e-6), line


@pytest.mark.parametrize("letters", ["ab", "ba", "aa", "abc", "aab"])
def test_products_are_those_of_vowpal_wabbit(letters):
    """After one example the slots with a weight are those of its features."""
    vowpalwabbit = pytest.importorskip("vowpalwabbit", reason="the vowpalwabbit package is not installed")
    line = "1 |b z w |a x y |c q"
    workspace = vowpalwabbit.Workspace(f"--quiet -b 16 --noconstant --sgd --interactions {letters}")
    workspace.learn(line)
    touched = {slot for slot in range(2**16) if workspace.get_weight(slot)}
    batch = ours(line.encode(), 2**16, interactions=(letters,)).batch
    assert touched == set(batch.slots.tolist())


def test_rcv1_has_the_counts_of_vowpal_wabbit(tmp_path):
    path = real_data.FOLDER / "rcv1_1k.vw"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    reader, buffer, parser, rows, features = ChunkReader([str(path)]), TextBuffer(1 << 18), VwParser(2**18), 0, 0
    while (chunk := reader.read(buffer)) is not None:
        part = parser.parse(chunk)
        assert part.stop == chunk.stop
        assert part.bad == 0
        rows, features = rows + part.batch.rows, features + part.batch.features
    assert (rows, features) == vw_counts(path.read_bytes(), tmp_path)
