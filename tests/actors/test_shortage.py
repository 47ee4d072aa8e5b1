"""An agent waits out what its machine lacks; one that is restarted too often takes nobody with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio

import proctor
from proctor.actors.error_kinds import is_retryable, response_of
from proctor.actors.errors import CompletionError, RecordingFailed
from proctor.actors.opencode_server.server import opencode_server
from proctor.actors.operations.health import agent_problems
from proctor.actors.plan.options import BACKOFF
from proctor.actors.recording.eventlog import EventLog
from proctor.actors.recording.recording import RunDirectory
from proctor.protocols.vocabulary import Text
from proctor.runtime.processes.process_errors import SpawnFailed
from proctor.runtime.processes.shortage import SHORTAGES
from tests.actors.far_end import codes, log_of, write_script
from tests.actors.full_disk import disk_at
from tests.tables import each_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def lacking(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@each_row("number", sorted(SHORTAGES), ids=errno.errorcode.get)
def test_a_call_refused_for_a_shortage_is_retryable_whatever_wraps_it(number: int) -> None:
    spawn = SpawnFailed("did not start", stage="spawn", argv0="x", cause=lacking(number))
    recording = RecordingFailed("x", lacking(number))
    recording.__cause__ = lacking(number)
    completion = CompletionError("no")
    completion.__cause__ = spawn
    for error in (lacking(number), spawn, recording, completion):
        assert is_retryable(error)
    other = SpawnFailed("x", stage="spawn", argv0="x", cause=lacking(errno.EIO))
    assert (is_retryable(other), response_of(other)) == (False, "refuse_start")


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


# what is recorded, on a disk that is full


def agent_below(folder: Path, name: str = "a", **options: Any) -> proctor.ChildSpec:
    script = write_script(folder, [{"reply": "{prompt}"}])
    chosen: dict[str, Any] = {
        "env": {"CLAUDE_CONFIG_DIR": str(folder / "state")},
        "record": folder / "runs",
        "shutdown": 3,
        **options,
    }
    return proctor.scripted(name, script, **chosen)


async def kill(sup: proctor.Supervisor) -> None:
    """Kill the process of agent `a`, and wait until its end was seen."""
    with sup.events(kinds=("child_exited",)) as events:
        os.kill((await sup.agent("a").status()).pid or 0, signal.SIGKILL)
        await anext(events)


async def test_an_agent_on_a_full_disk_goes_on_without_recording_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with disk_at(tmp_path / "runs") as disk:
        async with proctor.open_supervisor([agent_below(tmp_path)], intensity=0) as sup:
            agent = sup.agent("a")
            assert (await agent.ask("one")).text == "one"
            disk.full = True
            assert (await agent.ask("two")).text == "two"
            full = await agent.status()
            assert (await agent_problems({"a": agent})) == f"a is not recorded: {full.not_recorded}"
            disk.full = False
            assert (await agent.ask("three")).text == "three"
            assert (await agent.status()).not_recorded != ""  # its next process is recorded
            log = await log_of(agent)
    assert full.state == "idle"
    assert "No space left on device" in full.not_recorded
    assert codes(log).count("recording_failed") == 1
    [record] = [record for record in caplog.records if getattr(record, "event", "") == "recording_failed"]
    assert (record.levelname, "No space left on device" in record.getMessage()) == ("WARNING", True)


async def test_the_next_process_is_recorded_again_and_its_event_log_goes_on(tmp_path: Path) -> None:
    with disk_at(tmp_path / "runs") as disk:
        async with proctor.open_supervisor([agent_below(tmp_path)], intensity=1) as sup:
            agent = sup.agent("a")
            await agent.ask("one")
            disk.full = True
            await agent.ask("two")
            disk.full = False
            await kill(sup)
            await agent.ask("three")
            assert (await agent.status()).not_recorded == ""
            events = await log_of(agent)
            [run] = (tmp_path / "runs").iterdir()
            assert b"three" in (run / "2" / "stdout.ndjson").read_bytes()
            kept = EventLog(run / "events.ndjson")
            assert kept.end == len(events)
            kept.release()
    assert codes(events).count("recording_resumed") == 1


async def test_an_agent_starts_where_its_recording_finds_no_room(tmp_path: Path) -> None:
    with disk_at(tmp_path / "runs") as disk:
        disk.full = True
        async with proctor.open_supervisor([agent_below(tmp_path)]) as sup:
            agent = sup.agent("a")
            assert (await agent.ask("one")).text == "one"
            assert "No space left on device" in (await agent.status()).not_recorded
    assert disk.refused > 0
    assert not (tmp_path / "runs").exists()


async def test_an_agent_begun_on_a_full_disk_is_recorded_from_the_next_process_on_for_which_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    temporary, runs = tmp_path / "tmp", tmp_path / "runs"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    caplog.set_level("INFO", "proctor")
    with disk_at(runs) as disk:
        disk.full = True
        async with proctor.open_supervisor([agent_below(tmp_path)], intensity=2) as sup:
            agent = sup.agent("a")
            await agent.ask("one")
            await kill(sup)
            await agent.ask("two")
            full, refused = await agent.status(), disk.refused
            disk.full = False
            await kill(sup)
            await agent.ask("three")
            roomy, events = await agent.status(), await log_of(agent)
            [run] = runs.iterdir()
            assert b"three" in (run / "3" / "stdout.ndjson").read_bytes()
            kept = EventLog(run / "events.ndjson")
            kept.close()
            assert [event async for event in kept.cursor(0)] == events
            kept.release()
    assert (full.recording, "No space left on device" in full.not_recorded) == (None, True)
    assert refused > 1  # it was tried for the second process, too
    assert (roomy.recording, roomy.not_recorded) == (str(run), "")
    assert codes(events).count("recording_failed") == codes(events).count("recording_resumed") == 1
    [record] = [record for record in caplog.records if getattr(record, "event", "") == "recording_resumed"]
    assert str(run) in record.getMessage()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("nth", range(1, 12))
async def test_a_recording_that_cannot_move_to_its_place_stays_whole_where_it_was(
    nth: int, tmp_path: Path
) -> None:
    runs, failures = tmp_path / "runs", list[RecordingFailed | None]()
    with disk_at(runs) as disk:
        disk.full = True
        run = RunDirectory(runs, "a", limit=2**20, listen=failures.append, required=False)
        log = run.open_log()
        for number in range(1500):
            log.append([Text(number, "1.1", "." * 500)])
        disk.full, disk.room = False, nth
        run.open_incarnation().close()
        before = [path.name for path in runs.glob("*")]
        disk.full, disk.room = False, None
        run.open_incarnation().close()
    [kept] = runs.iterdir()
    assert (failures[-1], run.path, run.kept) == (None, kept, True)
    assert before in ([], [kept.name])  # nothing half of a failed attempt is left
    for reads in (log, EventLog(kept / "events.ndjson", limit=2**19)):
        reads.close()
        seen = [event.frame async for event in reads.cursor(reads.first)]
        assert seen == [*range(reads.first, 1500)]
        reads.release()
    run.close()


async def test_an_agent_that_must_be_recorded_is_failed_until_there_is_room(tmp_path: Path) -> None:
    must = agent_below(tmp_path, on_recording_failure="fail")
    with disk_at(tmp_path / "runs") as disk:
        async with proctor.open_supervisor([must], intensity=0) as sup:
            agent = sup.agent("a")
            await agent.ask("one")
            disk.full = True
            second = await agent.ask("two")
            third = await agent.ask("three")
            status = await agent.status()
            disk.full = False
            fourth = await agent.ask("four")
            assert (await agent.status()).state == "idle"
    assert not second.ok
    assert "No space left on device" in (second.error or "")
    assert (status.state, status.pid) == ("failed", None)
    assert "No space left on device" in status.evidence
    assert not third.ok
    assert "No space left on device" in (third.error or "")
    assert (fourth.outcome, fourth.text) == ("ok", "four")


async def test_an_agent_that_must_be_recorded_does_not_start_where_there_is_no_room(tmp_path: Path) -> None:
    with disk_at(tmp_path / "runs") as disk:
        disk.full = True
        with pytest.raises(proctor.StartError, match="No space left on device"):
            async with proctor.open_supervisor([agent_below(tmp_path, on_recording_failure="fail")]):
                pass


async def test_a_record_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(proctor.StartError, match="cannot write the run directory '/proc/nowhere'"):
        async with proctor.open_supervisor([agent_below(tmp_path, record="/proc/nowhere")]):
            pass


async def test_what_to_do_when_nothing_can_be_recorded_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(
        proctor.BadOption, match="on_recording_failure 'stop' is not a choice; accepted: continue, fail"
    ):
        agent_below(tmp_path, on_recording_failure="stop")


# a temporary folder that somebody empties


@pytest.mark.parametrize("options", [{}, {"home": "private"}, {"mode": "oneshot"}, {"record": None}], ids=str)
async def test_an_agent_survives_that_the_temporary_folder_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    async with proctor.open_supervisor([agent_below(tmp_path, **options)], intensity=1) as sup:
        agent = sup.agent("a")
        await agent.ask("one")
        for path in temporary.iterdir():
            shutil.rmtree(path)
        assert (await agent.ask("two")).text == "two"
        if options.get("mode") != "oneshot":
            await kill(sup)
        assert (await agent.ask("three")).text == "three"
        assert (await agent.status()).not_recorded == ""
    assert list(temporary.iterdir()) == []
