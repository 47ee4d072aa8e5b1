"""Real hosts over a real file, killed at random moments: the prompts that the agent's process got are counted."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import proctor
from proctor.actors.store.sqlite import Store
from proctor.runtime.processes.process import Command, open_process
from tests.runtime.programs import AT_ONCE, line
from tests.simulation.search import SEED, share

KEYS = 8
HOST = """
import sys, trio, proctor
async def main(folder):
    agent = proctor.scripted("a", folder + "/script.ndjson", record=folder + "/runs")
    async with proctor.open_supervisor([agent], store=proctor.Store(folder + "/fleet.db")) as sup:
        async def ask(n):
            try:
                answer = await sup.agent("a").ask(f"p{n}", key=f"k{n}")
                print(f"{n} {answer.outcome} {answer.text}", flush=True)
            except proctor.MaybeExecuted:
                print(f"{n} unknown", flush=True)
        async with trio.open_nursery() as nursery:
            for n in range(KEYS):
                nursery.start_soon(ask, n)
    print("done", flush=True)
trio.run(main, sys.argv[1])
"""


async def test_hosts_that_are_killed_at_random_lose_nothing_and_send_nothing_twice(tmp_path: Path) -> None:
    for number in range(share(10)):
        folder = tmp_path / str(number)
        prepare(folder)
        random, seen, lives = Random(SEED + number), dict[str, set[str]](), 0
        while not await one_life(folder, random, seen):
            lives += 1
        assert {key: len(ends) for key, ends in seen.items() if len(ends) != 1} == {}, f"seed {SEED + number}"
        assert len(seen) == KEYS
        store = Store(folder / "fleet.db")
        await store.open()
        kept = await store.requests()
        await store.close()
        assert sorted(one.key for one in kept) == sorted(f"k{n}" for n in range(KEYS))
        assert [one for one in kept if one.end is None] == []
        assert [one for one in sent_prompts(folder).items() if one[1] > 1] == [], f"seed {SEED + number}"
        assert lives > 0


def prepare(folder: Path) -> None:
    folder.mkdir()
    (folder / "script.ndjson").write_text('{"sleep": 0.02}\n{"reply": "{prompt}"}\n')


async def one_life(folder: Path, random: Random, seen: dict[str, set[str]]) -> bool:
    """Whether it came to its end; else it was killed after some of its lines, or before the first."""
    command = Command((sys.executable, "-c", HOST.replace("KEYS", str(KEYS)), str(folder)), dict(os.environ))
    received, lines = b"", random.randint(1, KEYS // 2)
    async with open_process(command, ladder=AT_ONCE) as process:
        while received.count(b"\n") < lines or seen.keys() >= {str(n) for n in range(KEYS)}:
            data = await process.receive()
            if not data:
                break
            received += data
    for printed in received.decode().split("\n")[:-1]:
        if printed != "done":
            seen.setdefault(printed.split()[0], set()).add(printed)
    return b"done\n" in received


def sent_prompts(folder: Path) -> Counter[str]:
    """How often each prompt was written to the agent, as the recordings of all hosts have it."""
    found = Counter[str]()
    for path in folder.glob("runs/*/*/stdin.ndjson"):
        for written in path.read_bytes().splitlines():
            frame = json.loads(written)
            if frame.get("type") == "user":
                found[str(frame["message"]["content"])] += 1
    return found


CUT_OFF = """
import sys, trio, proctor
async def main(folder):
    agent = proctor.scripted("a", folder + "/script.ndjson", record=folder + "/runs")
    async with proctor.open_supervisor([agent], store=proctor.Store(folder + "/fleet.db")) as sup:
        async with sup.agent("a").events() as log:
            await sup.agent("a").queue("hello", key="k")
            async for event in log:
                if isinstance(event, proctor.Text):
                    print("streaming", flush=True)
trio.run(main, sys.argv[1])
"""


async def test_what_had_streamed_is_in_the_end_of_a_request_whose_host_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.ndjson"
    script.write_text('{"say": "I have deleted half of it."}\n{"sleep": 600}\n{"reply": "done"}\n')
    command = Command((sys.executable, "-c", CUT_OFF, str(tmp_path)), dict(os.environ))
    async with open_process(command, ladder=AT_ONCE) as process:
        assert await line(process) == b"streaming\n"
    agent = proctor.scripted("a", script, record=tmp_path / "runs")
    async with proctor.open_supervisor([agent], store=Store(tmp_path / "fleet.db")) as sup:
        with pytest.raises(proctor.MaybeExecuted, match="the host that sent it has died") as caught:
            await sup.agent("a").ask("hello", key="k")
    found = caught.value.delivery
    assert found is not None
    assert (found.stage, found.text) == ("streaming", "I have deleted half of it.")
    assert found.session_id is not None
    assert found.recording is not None
    assert found.recording.parent == tmp_path / "runs"
