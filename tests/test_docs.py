"""What the documentation names exists, and what it generates is up to date."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = re.findall(r"`(lessram[\w.]*):(\w+)`", (ROOT / "docs/paper.md").read_text())
STATEMENTS = ["Algorithm 1", "Algorithm 2", "Theorem 3.1", "Corollary 3.2", "Theorem 3.3", "Lemma 4.1", "Lemma 4.2"]
STATEMENTS += ["Theorem 4.3", "Lemma A.1", "Theorem A.2", "Lemma A.3", "Figure 1", "Figure 2", "Table 1"]
"""Everything in the paper that has a number."""
LINKS = [
    (page, target)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_map_of_the_paper_is_complete(statement: str) -> None:
    rows = [line for line in (ROOT / "docs/paper.md").read_text().splitlines() if line.startswith("|")]
    assert any(f"**{statement}**" in row and "`lessram." in row for row in rows)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_names_in_the_map_of_the_paper_exist(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("page", "target"), LINKS, ids=lambda value: getattr(value, "name", value))
def test_links_lead_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()


def test_the_readme_names_both_commands_and_they_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in (ROOT / "README.md").read_text()
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
