"""What all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest
import real_data

# How long an example takes says something about the machine, and nothing about the property.
whatever_time = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow], "database": None}
hypothesis.settings.register_profile("lessram", **whatever_time, derandomize=True)
hypothesis.settings.register_profile("nightly", **whatever_time, max_examples=10_000)
hypothesis.settings.load_profile(os.environ.get("LESSRAM_HYPOTHESIS_PROFILE", "lessram"))

# A suite that runs in the background is started deaf to Ctrl-C, and so would be every process that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data, which is not part of the repository."""
    if not real_data.FOLDER.is_dir():
        pytest.skip(f"no real data: {real_data.FOLDER} is not there (LESSRAM_DATA)")
    return real_data.FOLDER
