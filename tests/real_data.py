"""Where real data lie, which are not part of the repository (docs/data.md); tests that need them skip where absent."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("LESSRAM_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
