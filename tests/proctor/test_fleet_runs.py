"""What `proctor up` continues and what it begins anew, after each way in which the one before can end."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import proctor as library
from proctor.actors.agent.stored_requests import TODAY
from proctor.actors.limits.overrides import HOLD, STOPPED
from proctor.actors.store.memory import MemoryStore
from proctor.cli.fleet_run import RUN, open_run, store_path
from tests.actors.store.peers import Counting, spec_with_home
from tests.proctor.command import once, proctor, running
from tests.proctor.scripts import ANSWERS, HANGS, Fleet, agent


def two_agents(fleet: Fleet, **slow: str) -> Path:
    return fleet(
        agent("quick", script='"quick.ndjson"', prompt='"x"'),
        agent("slow", script='"slow.ndjson"', prompt='"y"', **slow),
        quick=ANSWERS,
        slow=HANGS,
    )


def cut_short(path: Path, home: Path, number: signal.Signals) -> str:
    """Run the fleet until its first agent has answered and its second has begun, and send it a signal."""
    with running("up", str(path), home=home) as command:
        out = ""
        while not ("I begin." in out and "answered" in out):
            out += command.said(b"\n").decode()
        # what is written there says what the next host may do
        once(lambda: has_begun(home))
        command.signal(number)
        command.end()
    return out


def has_begun(home: Path) -> bool:
    """Whether the store of the only fleet knows that the open turn has begun, and the conversations of both agents."""
    [store] = (home / "state" / "proctor" / "fleets").glob("*.db")
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        marks = database.execute("SELECT sent FROM requests WHERE ended IS NULL").fetchall()
        sessions = database.execute("SELECT agent FROM facts WHERE name = 'session'").fetchall()
    has_started = [mark is not None and b'"started":true' in mark for (mark,) in marks] == [True]
    return has_started and len(sessions) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_cut_short_is_continued_and_repeats_nothing(
    number: signal.Signals, home: Path, fleet: Fleet
) -> None:
    path = two_agents(fleet)
    first = cut_short(path, home, number)
    session = re.search(r"quick +session ([\w-]+),", first)
    assert session is not None
    done = proctor("up", str(path), home=home)
    assert done.status == 1
    assert re.search(r"continues the run of \d{4}-\d\d-\d\d .*; --fresh begins anew", done.out)
    assert f"quick  resumed session {session[1]}" in done.out
    assert "quick  asked before: x" in done.out
    how = (
        "no answer: .*the request may have been carried out"
        if number == signal.SIGKILL
        else "was interrupted"
    )
    assert re.search(rf"slow +{how}", done.out), done.out
    assert "All is well, x" in done.out.partition("agent  result")[2]
    assert "says:" not in done.out
    # that one came to its end: the next is another run
    assert "quick  asked: x" in cut_short(path, home, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_goes_on_after_a_crash_goes_on_after_the_end_of_its_host(
    number: signal.Signals, home: Path, fleet: Fleet
) -> None:
    path = fleet(
        agent("quick", script='"quick.ndjson"', prompt='"x"'),
        agent("slow", script='"slow.ndjson"', prompt='"y"', on_crash='"resume"'),
        quick=ANSWERS,
        slow=('{"turn": "again", "incarnation": 2}', '{"reply": "I went on."}', '{"turn": ""}', *HANGS),
    )
    cut_short(path, home, number)
    done = proctor("up", str(path), home=home)
    assert (done.status, "I went on." in done.out) == (0, True), done.out


@pytest.mark.parametrize("words", [("--fresh",), ()])
def test_what_is_begun_anew_is_asked_again_in_new_conversations(
    words: tuple[str, ...], home: Path, fleet: Fleet
) -> None:
    path = two_agents(fleet)
    cut_short(path, home, signal.SIGKILL if words else signal.SIGINT)
    with running("up", str(path), *words, home=home) as command:
        out = command.said(b"I begin.").decode()
        assert "continues" not in out
        assert "resumed" not in out
        command.signal(signal.SIGKILL)


def test_a_fleet_runs_once_at_a_time_and_one_of_another_file_beside_it(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    path = two_agents(fleet)
    with running("up", str(path), home=home) as command:
        command.said(b"I begin.")
        second = proctor("up", str(path), home=home)
        assert second.status == 1
        assert second.complaint == (
            f"proctor: {path} is running already (process {command.process.pid}): stop it first"
        )
        (tmp_path / "other").mkdir()
        other = tmp_path / "other" / path.name
        other.write_text(agent("one", script=f'"{path.parent / "quick.ndjson"}"', prompt='"x"'))
        assert proctor("up", str(other), home=home).status == 0
        command.signal(signal.SIGKILL)


async def test_a_fresh_run_drops_what_was_queued_and_a_continued_one_does_not(
    autojump_clock: MockClock,
) -> None:
    store, peer = MemoryStore(), Counting()
    run = await open_run(store, fresh=False)
    assert not run.is_continued
    async with library.open_supervisor([spec_with_home(peer)], store=store) as sup:
        await sup.agent("agent").queue("hang", key="first")
        await sup.agent("agent").queue("later", key="second")
        await sup.agent("agent").queue("prompt", key=run.key("prompt"))
        await sup.overrides.hold("agent", "wait", None)
        await sup.overrides.stop("other")
    continued = await open_run(store, fresh=False)
    assert (continued.begun, continued.is_continued) == (run.begun, True)
    # of the file's own, what was not sent is asked again by the command, with the whole of its time
    assert {request.key: request.end is None for request in await store.requests()} == {
        "first": False,
        "second": True,
        run.key("prompt"): False,
    }
    assert {name for kept in (await store.facts()).values() for name in kept} == {
        RUN,
        TODAY,
        "session",
        "total_cost_usd",
        HOLD,
        STOPPED,
    }
    fresh = await open_run(store, fresh=True)
    assert (fresh.begun != run.begun, fresh.is_continued) == (True, False)
    assert all(request.end is not None for request in await store.requests())
    facts = await store.facts()
    # the day is not over with the run
    assert {name for kept in facts.values() for name in kept} == {RUN, TODAY}
    assert facts[""] == {RUN: fresh.begun}


def test_the_store_of_a_fleet_is_named_after_it_and_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    one, other = (store_path("my fleet/1", Path(folder, "f.toml")) for folder in ("/a", "/b"))
    assert one.parent == Path("/state/proctor/fleets")
    assert re.fullmatch(r"my fleet%2F1-[0-9a-f]{8}\.db", one.name)
    assert one != other


def test_a_server_that_was_killed_goes_on_with_its_run(home: Path, fleet: Fleet) -> None:
    path = fleet(agent("a", script='"a.ndjson"', prompt='"x"'), a=ANSWERS)
    with running("web", str(path), home=home) as command:
        once(lambda: runs_of(home)[0]["turns"] > 0)
        second = proctor("web", str(path), "--listen", "0", home=home)
        assert (second.status, "is running already (process " in second.complaint) == (1, True)
        command.signal(signal.SIGKILL)
        command.end()
    [killed] = runs_of(home)
    for number, is_continued in ((signal.SIGINT, True), (signal.SIGKILL, False)):
        known = {run["id"] for run in runs_of(home)}
        with running("web", str(path), home=home) as command:
            run = once(partial(new_run, home, known, is_continued=is_continued))
            [meta] = Path(run["path"]).glob("1/meta.json")
            command.signal(number)
            command.end()
        assert (f"--resume={killed['session_id']}" in json.loads(meta.read_bytes())["argv"]) == is_continued
        sent = (meta.parent / "stdin.ndjson").read_text()
        assert ('"x"' in sent) is not is_continued


@pytest.mark.parametrize("command", ["up", "web"])
def test_an_agent_that_was_stopped_gets_its_prompt_when_it_is_started(
    command: str, home: Path, fleet: Fleet
) -> None:
    other = agent("b", script='"a.ndjson"')
    path = fleet(agent("a", script='"a.ndjson"'), other, a=ANSWERS)
    with running(command, str(path), home=home) as host:
        once(lambda: is_up(home))
        assert proctor("stop", "a", home=home).out == "a stopped\n"
        host.signal(signal.SIGKILL)
        host.end()
    fleet(agent("a", script='"a.ndjson"', prompt='"x"'), other, a=ANSWERS)
    with running(command, str(path), home=home) as host:
        once(lambda: is_up(home, "b"))
        assert agents(home)["a"]["evidence"] == "by the operator"
        assert proctor("start", "a", home=home).status == 0
        once(lambda: agents(home)["a"]["turns"] == 1)
        host.signal(signal.SIGKILL)


def is_up(home: Path, *names: str) -> bool:
    """Whether the fleet is served, and these agents, by default all, have started."""
    if proctor("ps", home=home).status != 0:
        return False
    found = agents(home)
    return all(found[name]["state"] == "idle" for name in names or found)


def agents(home: Path) -> dict[str, Any]:
    return {record["name"]: record for record in json.loads(proctor("ps", "-o", "json", home=home).out)}


def runs_of(home: Path) -> list[dict[str, Any]]:
    """The recorded runs; one without a turn while nothing is recorded."""
    found: list[dict[str, Any]] = json.loads(proctor("runs", "-o", "json", home=home).out)
    return found or [{"turns": 0, "id": ""}]


def new_run(home: Path, known: set[str], *, is_continued: bool) -> dict[str, Any] | None:
    """The run that is not known yet, when its agent was sent what it is to be sent at its start."""
    new = [run for run in runs_of(home) if run["id"] not in known]
    is_ready = bool(new) and (has_started(home) if is_continued else new[0]["turns"] > 0)
    return new[0] if is_ready else None


def has_started(home: Path) -> bool:
    """Whether the only agent of the fleet that runs is ready."""
    done = proctor("ps", "-o", "json", home=home)
    return done.status == 0 and json.loads(done.out)[0]["state"] in ("idle", "working")


def is_written(path: Path) -> bool:
    """Whether a line is in this file: a shell makes the file first."""
    return path.exists() and path.read_text().endswith("\n")


def test_what_a_killed_host_could_not_deliver_the_next_one_does(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    tried, told, gate = tmp_path / "tried", tmp_path / "told", tmp_path / "gate"
    hook = f'read -r line; echo "$line" >> {tried}; test -e {gate} && echo "$line" >> {told}'
    table = f'[notify]\ncommand = {json.dumps(["sh", "-c", hook])}\non = ["parked"]\n'
    path = fleet(table, agent("a", script='"a.ndjson"'), a=ANSWERS)
    with running("up", str(path), home=home) as command:
        once(lambda: proctor("park", "a", home=home).status == 0)
        once(lambda: is_written(tried))
        proctor("unpark", "a", home=home)
        command.signal(signal.SIGKILL)
        command.end()
    gate.touch()
    first = json.loads(tried.read_text().splitlines()[0])
    with running("up", str(path), home=home):
        once(lambda: is_written(told))
        assert json.loads(told.read_text().splitlines()[0]) == first
