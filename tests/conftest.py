"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).parent.parent

hypothesis.settings.register_profile("lessram", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("lessram")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data, which is not part of the repository."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there")
    return folder
