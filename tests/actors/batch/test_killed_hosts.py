"""Real hosts of a batch, killed at random moments: each attempt has one result, and what was paid for is not paid for again."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random

import proctor
from proctor.actors.agent.request import CONTINUE_PROMPT
from proctor.runtime.processes.process import Command, open_process
from tests.runtime.programs import AT_ONCE
from tests.simulation.search import SEED, share

TASKS = 6
HOST = """
import sys, proctor
async def main(folder):
    agent = proctor.scripted("a", folder + "/script.ndjson", home="private")
    tasks = [proctor.BatchTask(id=f"t{n}", prompt=f"p{n}", check="echo checked >> " + folder + f"/t{n}") for n in range(TASKS)]
    async for result in proctor.batch(tasks, agent, limit=2, results=folder + "/results.jsonl"):
        print(result.task, result.cause, flush=True)
    print("done", flush=True)
proctor.run(main, sys.argv[1])
"""


async def test_batches_that_are_killed_at_random_lose_nothing_and_pay_for_nothing_twice(
    tmp_path: Path,
) -> None:
    for number in range(share(6)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "script.ndjson").write_text(
            '{"say": "Let me see."}\n{"sleep": 0.02}\n{"reply": "{prompt}"}\n'
        )
        random, lives = Random(SEED + number), 1
        while not await one_life(folder, random):
            lives += 1
        found = proctor.load_results(folder / "results.jsonl")
        assert sorted(result.task for result in found) == [f"t{n}" for n in range(TASKS)], (
            f"seed {SEED + number}"
        )
        assert lives > 1
        prompts = sent_prompts(folder)
        for result in found:
            asked = f"p{result.task[1:]}"
            assert result.ok, f"seed {SEED + number}: {result}"
            # its conversation went on, or it died before its turn had begun: then another try, which is written down
            assert prompts[asked] == len(result.tries), f"seed {SEED + number}: {result}"
        assert list((folder / "results.jsonl.state/work").iterdir()) == []
        assert prompts[CONTINUE_PROMPT] <= lives * 2


async def one_life(folder: Path, random: Random) -> bool:
    """Whether it came to its end; else it was killed after one of its results, or before the first."""
    command = Command(
        (sys.executable, "-c", HOST.replace("TASKS", str(TASKS)), str(folder)), dict(os.environ)
    )
    received, lines = b"", 0
    kept = (folder / "results.jsonl").read_bytes().count(b"\n") if (folder / "results.jsonl").exists() else 0
    wanted = kept + random.randint(1, 3)
    async with open_process(command, ladder=AT_ONCE) as process:
        while lines < wanted or wanted >= TASKS:
            data = await process.receive()
            if not data:
                break
            received += data
            lines = received.count(b"\n")
    return b"done\n" in received


def sent_prompts(folder: Path) -> Counter[str]:
    """How often each prompt was written to an agent, as the recordings of all hosts have it."""
    found = Counter[str]()
    for path in folder.glob("results.jsonl.state/recordings/*/*/stdin.ndjson"):
        for written in path.read_bytes().splitlines():
            frame = json.loads(written)
            if frame.get("type") == "user":
                found[str(frame["message"]["content"])] += 1
    return found
