"""What the documentation names exists: modules, functions, files, links, commands, options, Python examples."""

from __future__ import annotations

import ast
import gzip
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import numpy as np
import pandas
import pytest
import typer.main

import lessram
from lessram.cli.main import app

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lessram"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
CODE = {name: re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)) for name, text in TEXTS.items()}
"""What stands between backticks, by page."""

NAMES = sorted({code for codes in CODE.values() for code in codes if re.fullmatch(r"lessram(\.\w+)+(:\w+)?", code)})
FILES = sorted({(name, word) for name, codes in CODE.items() for code in codes for word in code.split()})
FILES = [
    (name, word) for name, word in FILES if re.fullmatch(r"[\w./-]*[\w-]{2,}\.(py|md|png)|[\w-]+(/[\w.-]+)*/", word)
]
LINKS = [
    (page, *target.partition("#")[::2])
    for page in PAGES
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXTS[page.name])
]
STATEMENTS = ["Algorithm 1", "Algorithm 2", "Theorem 3.1", "Corollary 3.2", "Theorem 3.3", "Lemma 4.1", "Lemma 4.2"]
STATEMENTS += ["Theorem 4.3", "Lemma A.1", "Theorem A.2", "Lemma A.3", "Figure 1", "Figure 2", "Table 1"]
"""Everything in the paper that has a number."""


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_map_of_the_paper_is_complete(statement: str) -> None:
    rows = [line for line in TEXTS["paper.md"].splitlines() if line.startswith("|")]
    assert any(f"**{statement}**" in row and "`lessram." in row for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_modules_and_functions_exist(name: str) -> None:
    pkgutil.resolve_name(name)


@pytest.mark.parametrize(("page", "file"), FILES)
def test_files_exist(page: str, file: str) -> None:
    """By their path from the root or in the package; modules of one folder by their name alone."""
    anywhere = file.endswith(".py") and "/" not in file and any(PACKAGE.rglob(file))
    assert anywhere or (ROOT / file).exists() or (PACKAGE / file).exists()


@pytest.mark.parametrize(("page", "target", "part"), LINKS, ids=lambda value: getattr(value, "name", value))
def test_links_lead_somewhere(page: Path, target: str, part: str) -> None:
    found = page.parent / target if target else page
    assert found.exists()
    headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.M) if part else []
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert not part or part in anchors


def test_the_readme_names_both_commands_and_they_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in TEXTS["README.md"]
    for target in re.findall(r"^ +(?:\w+=\w+ )?make (\w+)", "\n".join(TEXTS.values()), re.M):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


# Commands -------------------------------------------------------------------------------------------------------------

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TYPED = {
    line.strip()
    for text in TEXTS.values()
    for pattern in (r"(?:^ +|\| )(lessram [a-z].*)$", r"`(lessram [a-z][^`\n]*)`")
    for line in re.findall(pattern, re.sub(r" \\\n +", " ", text), re.M)
}


@pytest.mark.parametrize("line", sorted(TYPED))
def test_commands_and_their_options_exist(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    assert words[0] in COMMANDS
    parameters = COMMANDS[words[0]].params
    options = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[A-Za-z]", word)}
    assert given <= options | {"-h", "--help"}


def test_every_command_shows_an_example_of_itself() -> None:
    for name, command in COMMANDS.items():
        assert f"lessram {name}" in command.help.split("Example", 1)[1]


# Python ---------------------------------------------------------------------------------------------------------------

FENCES = [(name, code) for name, text in TEXTS.items() for code in re.findall(r"```python\n(.*?)```", text, re.S)]


@pytest.mark.parametrize(("page", "code"), FENCES, ids=[name for name, _ in FENCES])
def test_python_examples_import_what_exists(page: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("lessram"):
            for alias in node.names:
                assert hasattr(importlib.import_module(str(node.module)), alias.name)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lessram":
            assert hasattr(lessram, node.attr)


@pytest.mark.parametrize("page", ["README.md", "tutorial.md", "serving.md"])
def test_python_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, with the data that they speak of; in smaller tables."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    lines = [f"{r % 2} {r % 2}:1 {2 + r % 7}:0.5" for r in range(200)]
    frame = pandas.DataFrame({"click": np.arange(200) % 2, "site": ["rome", "oslo"] * 100, "price": np.arange(200.0)})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.svm.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "today.svm").write_text("\n".join(lines))
    (tmp_path / "ads").mkdir()
    for path in ("ads/1.parquet", "tomorrow.parquet"):
        frame.to_parquet(tmp_path / path)
    model = lessram.Model.new(lessram.Spec(slots=1 << 10))
    model.reader = lessram.read_batches("today.svm", slots=1 << 10).reader
    model.save(tmp_path / "clicks.lessram")
    X, y = frame[["price"]].to_numpy(), frame["click"].to_numpy()
    names = {"X": X, "y": y, "more": X, "labels": y, "frame": frame.drop(columns="click")}
    for name, code in FENCES:
        if name == page:
            exec(code.replace("1 << 24", "1 << 10"), names)


def test_the_rules_can_fail() -> None:
    assert len(NAMES) > 40
    assert len(FILES) > 40
    assert len(TYPED) > 40
    assert len(FENCES) >= 4
    assert "lessram.numerics.bounds:regret_1d" in NAMES
    with pytest.raises(AssertionError):
        test_commands_and_their_options_exist("lessram train a.svm -o m --colour red")
    with pytest.raises(AssertionError):
        test_files_exist("README.md", "benchmarks/nothing.py")
