"""An agent waits out what its machine lacks; one that is restarted too often takes nobody with it."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest
import trio

import proctor
from proctor.actors.causes import RESPONSES, fault_of, is_transient
from proctor.actors.errors import CompletionError, RecordingFailed
from proctor.actors.plan import BACKOFF
from proctor.actors.server import opencode_server
from proctor.runtime.process_errors import SpawnFailed
from proctor.runtime.shortage import SHORTAGES
from tests.actors.far_end import write_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def lacking(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", sorted(SHORTAGES), ids=errno.errorcode.get)
def test_a_call_refused_for_a_shortage_is_transient_whatever_wraps_it(number: int) -> None:
    spawn = SpawnFailed("did not start", stage="spawn", argv0="x", cause=lacking(number))
    recording = RecordingFailed("x", lacking(number))
    recording.__cause__ = lacking(number)
    completion = CompletionError("no")
    completion.__cause__ = spawn
    for error in (lacking(number), spawn, recording, completion):
        assert is_transient(error)
    assert (
        RESPONSES[fault_of(SpawnFailed("x", stage="spawn", argv0="x", cause=lacking(errno.EIO)))] == "report"
    )


def test_agents_and_their_servers_back_off_unless_their_owner_says_otherwise(tmp_path: Path) -> None:
    script = write_script(tmp_path, [{"reply": "hi"}])
    specs = [
        proctor.claude("a"),
        proctor.codex("b"),
        proctor.opencode("c"),
        proctor.acp("d", ["x"]),
        proctor.scripted("e", script),
        opencode_server("f"),
    ]
    assert {spec.backoff for spec in specs} == {BACKOFF}
    assert proctor.claude("a", backoff=None).backoff is None
    assert proctor.ChildSpec("a", print).backoff is None


async def test_an_agent_without_descriptors_waits_for_them_and_its_neighbour_answers(tmp_path: Path) -> None:
    script = write_script(tmp_path, [{"reply": "{prompt}"}])
    command = [sys.executable, "-m", "tests.actors.without_descriptors", str(script)]
    with trio.fail_after(60):
        ended = await trio.run_process(command, capture_stdout=True)
    seen = json.loads(ended.stdout)
    assert "SIGKILL" in seen["restarts"][0]
    assert all("Too many open files" in reason for reason in seen["restarts"][1:])
    assert seen["status"].startswith("backoff (")
    assert "Too many open files" in seen["status"]
    assert (seen["neighbour"], seen["again"]) == ("two", "three")
