from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a script of these lines and gives the agent that plays it."""

    def write(*lines: str, name: str = "agent") -> str:
        path = tmp_path / f"{name}.ndjson"
        path.write_text("".join(f"{line}\n" for line in lines))
        return f"scripted:{path}"

    return write
