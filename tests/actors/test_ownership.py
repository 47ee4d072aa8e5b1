from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import proctor
from proctor.actors.agent.session_lock import SessionLock
from proctor.actors.errors import SessionOwned
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import Step, codes, log_of, write_script
from tests.proctor.command import PATIENCE, environment

COUNTING: Sequence[Step] = ({"reply": "{turn}: {prompt}"},)


def owner(folder: Path, agent: str = "a") -> SessionLock:
    return SessionLock(agent, lambda session: session, lambda: folder / "sessions")


def test_a_session_has_one_owner_and_the_second_is_told_who_it_is(tmp_path: Path) -> None:
    first, second = owner(tmp_path, "first"), owner(tmp_path, "second")
    first.acquire("s")
    first.acquire("s")
    with pytest.raises(SessionOwned) as caught:
        second.acquire("s")
    assert str(caught.value) == (
        f"second refused to resume session s: it is owned by agent 'first' of process {os.getpid()}"
    )
    assert (caught.value.pid, caught.value.owner) == (os.getpid(), "first")
    second.acquire("t")
    first.acquire("u")  # lets go of the other
    second.acquire("s")
    assert sorted(path.name for path in (tmp_path / "sessions").iterdir()) == ["s.lock", "u.lock"]


def test_what_is_released_leaves_nothing_behind_and_a_refusal_takes_nothing_away(tmp_path: Path) -> None:
    first, second = owner(tmp_path), owner(tmp_path)
    first.acquire("s")
    second.acquire("t")
    with pytest.raises(SessionOwned):
        second.acquire("s")
    assert second.session == "t"
    for one in (first, second):
        one.release()
        one.release()
    assert list((tmp_path / "sessions").iterdir()) == []


def test_a_file_that_is_removed_while_somebody_waits_is_no_lock(tmp_path: Path) -> None:
    first, second = owner(tmp_path), owner(tmp_path)
    first.acquire("s")
    (tmp_path / "sessions" / "s.lock").unlink()
    second.acquire("s")  # a new file of this name: whoever holds the old one holds nothing that others see
    with pytest.raises(SessionOwned):
        owner(tmp_path).acquire("s")


def test_without_a_folder_to_write_in_there_is_no_lock_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("not a folder")
    first, second = owner(tmp_path), owner(tmp_path)
    first.acquire("s")
    second.acquire("s")
    first.release()


DYING = """
import os, sys
from pathlib import Path
from proctor.actors.agent.session_lock import SessionLock
SessionLock("dead", lambda session: session, lambda: Path(sys.argv[1], "sessions")).acquire("s")
os._exit(9)
"""


def test_the_lock_of_a_host_that_died_is_free(tmp_path: Path) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path)], env=environment(tmp_path), timeout=PATIENCE, check=False
    )
    assert died.returncode == 9
    assert (tmp_path / "sessions" / "s.lock").exists()
    owner(tmp_path).acquire("s")


def agent_of(name: str, folder: Path, resume: str | None = None, **options: str) -> ChildSpec:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "state")}
    script = write_script(folder, COUNTING)
    if resume is None:
        return proctor.scripted(name, script, env=env, shutdown=3)
    return proctor.scripted(name, script, env=env, shutdown=3, resume=resume)


async def test_two_agents_never_run_one_session(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of("a", tmp_path)]) as sup:
        session = (await sup.agent("a").ask("one")).session_id
        assert session is not None
        with pytest.raises(proctor.StartError) as caught:
            await sup.start_child(agent_of("b", tmp_path, session))
        assert f"is owned by agent 'a' of process {os.getpid()}" in str(caught.value)
        await sup.terminate_child("a")
        await sup.start_child(agent_of("c", tmp_path, session))
        assert (await sup.agent("c").ask("two")).text == "2: two"
        with pytest.raises(proctor.StartError, match="it is owned by agent 'c'"):
            await sup.restart_child("a")


async def test_a_session_stays_owned_over_a_restart(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of("a", tmp_path)]) as sup:
        agent = sup.agent("a")
        session = (await agent.ask("one")).session_id
        os.killpg((await agent.status()).pid or 0, signal.SIGKILL)
        async with agent.events() as log:
            async for event in log:
                if isinstance(event, v.Exited):
                    break
        with pytest.raises(proctor.StartError):
            await sup.start_child(agent_of("b", tmp_path, session))
        assert (await agent.ask("two")).text == "2: two"


async def test_a_run_without_a_tree_takes_no_session_that_an_agent_runs(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of("a", tmp_path)]) as sup:
        session = (await sup.agent("a").ask("one")).session_id
        with pytest.raises(SessionOwned, match="it is owned by agent 'a'"):
            await proctor.ask(agent_of("b", tmp_path, session), "two")
        await sup.stop()
    again = [await proctor.ask(agent_of("b", tmp_path, session), word) for word in ("two", "three")]
    assert [answer.text for answer in again] == ["2: two", "3: three"]


async def test_a_script_that_two_agents_play_is_nobodys_session(tmp_path: Path) -> None:
    steps = [{"reply": "{prompt}"}]
    one = proctor.scripted("one", write_script(tmp_path, steps), record=tmp_path / "runs", shutdown=3)
    await proctor.ask(one, "hi")
    [recording] = (tmp_path / "runs").glob("*/1")
    twins = [proctor.scripted(name, recording, shutdown=3) for name in ("a", "b")]
    async with proctor.open_supervisor(twins) as sup:
        for name in ("a", "b"):
            assert (await sup.agent(name).ask("hi")).text == "hi"
        seen = await log_of(sup.agent("b"))
    assert codes(seen).count("session_owned") == 1
