"""A store beneath the real Claude Code: hosts that come and go, one of them killed in mid-turn."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import proctor
from proctor.runtime.processes.process import Command, open_process
from tests.fakes.messages_api import MessagesApi
from tests.fakes.steps import Hang, Text
from tests.real.conftest import Cli, newest_claude
from tests.real.homes import ClaudeHome, until
from tests.runtime.programs import AT_ONCE

HOST = """
import json, sys, trio, proctor
async def main(options, store):
    agent = proctor.claude("a", **options)
    async with proctor.open_supervisor([agent], store=proctor.Store(store)) as sup:
        await sup.agent("a").ask("first", key="k1")
        await sup.agent("a").ask("second", key="k2")
trio.run(main, json.loads(sys.argv[1]), sys.argv[2])
"""


def options_of(cli: Cli, home: ClaudeHome, folder: Path) -> proctor.SpecOptions:
    return {
        "executable": cli.path,
        "cwd": home.work,
        "env": home.environment,
        "retries": 2,
        "permission": "allow",
        "record": folder / "runs",
    }


@newest_claude
async def test_the_next_host_knows_the_answers_and_goes_on_in_the_conversation(
    claude_cli: Cli, messages_api: MessagesApi, claude_home: ClaudeHome, tmp_path: Path
) -> None:
    messages_api.play(Text("one"), Text("two"))
    answers = list[proctor.Answer]()
    for prompts in (["first"], ["first", "second"]):
        agent = proctor.claude("a", **options_of(claude_cli, claude_home, tmp_path))
        async with proctor.open_supervisor([agent], store=proctor.Store(tmp_path / "fleet.db")) as sup:
            for prompt in prompts:
                answers.append(await sup.agent("a").ask(prompt, key=prompt, timeout=60))
    first, again, second = answers
    assert (first.text, second.text) == ("one", "two")
    assert again == first
    assert second.session_id == first.session_id
    assert messages_api.scripted[1].n_messages > messages_api.scripted[0].n_messages
    assert len(messages_api.scripted) == 2


@newest_claude
@pytest.mark.parametrize("on_crash", ["fail", "resume"])
async def test_a_host_that_is_killed_in_mid_turn_leaves_what_the_next_one_tells_or_goes_on_with(
    on_crash: str, claude_cli: Cli, messages_api: MessagesApi, claude_home: ClaudeHome, tmp_path: Path
) -> None:
    messages_api.play(Text("before"), Hang(Text("never finished"), after=1), Text("after"))
    options = options_of(claude_cli, claude_home, tmp_path)
    options["on_crash"] = "resume" if on_crash == "resume" else "fail"
    store = tmp_path / "fleet.db"
    given = json.dumps(options, default=str)
    host = Command((sys.executable, "-c", HOST, given, str(store)), dict(os.environ))
    async with open_process(host, ladder=AT_ONCE):
        # what a resumption needs, and what the error shows
        await until(lambda: has_begun(store) and b"never" in recorded(tmp_path), within=90)
    agent = proctor.claude("a", **options)
    async with proctor.open_supervisor([agent], store=proctor.Store(store)) as sup:
        assert (await sup.agent("a").ask("first", key="k1", timeout=60)).text == "before"
        if on_crash == "resume":
            after = await sup.agent("a").ask("second", key="k2", timeout=60)
            assert (after.text, len(messages_api.scripted)) == ("after", 3)
        else:
            with pytest.raises(proctor.MaybeExecuted, match="the host that sent it has died") as caught:
                await sup.agent("a").ask("second", key="k2", timeout=60)
            assert caught.value.delivery is not None
            assert caught.value.delivery.text.startswith("never")
            assert len(messages_api.scripted) == 2
    assert claude_home.leftovers() == []


def recorded(folder: Path) -> bytes:
    """What the CLI has written to its hosts so far."""
    return b"".join(path.read_bytes() for path in folder.glob("runs/*/events.ndjson"))


def has_begun(store: Path) -> bool:
    """Whether the store knows that the turn of the second request has begun."""
    if not store.exists():
        return False
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        try:
            found = database.execute("SELECT sent FROM requests WHERE key = 'k2'").fetchone()
        except sqlite3.OperationalError:  # its tables are not there yet
            return False
    return found is not None and b'"started":true' in (found[0] or b"")
