"""Agents in folders whose names are no UTF-8, as a file system of another age has them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import proctor
from proctor.actors.errors import BadOption
from proctor.actors.replay import read_recording
from proctor.actors.scripted.launch import SCRIPTED_WIRES
from proctor.runtime.exits import DeliveryError
from tests.actors.far_end import write_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    path.mkdir()
    return path


@pytest.mark.parametrize("dialect", sorted(SCRIPTED_WIRES))
async def test_an_agent_in_a_folder_whose_name_is_no_utf8_answers_or_says_why_not(
    folder: Path, dialect: str
) -> None:
    script = write_script(folder, [{"reply": "hello"}])
    runs = folder / "runs"
    refusal = ""
    try:
        answer = await proctor.ask(
            proctor.scripted("a", script, dialect=dialect, cwd=folder, record=runs), "hi"
        )
    except (proctor.AgentError, BadOption, DeliveryError) as error:
        refusal = str(error)
    else:
        assert answer.text == "hello", answer.error
        [run] = runs.iterdir()
        assert read_recording(run)
    assert not refusal or "not UTF-8" in refusal
