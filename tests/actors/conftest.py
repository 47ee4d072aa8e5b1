from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made during the test, by this process and by those that it starts."""
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it reads the variable once, and keeps what it found
    return made
