from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

import proctor
from proctor.actors.errors import BadOption
from proctor.actors.store.backend import StoreInUse
from proctor.testing.fixtures import ScriptedAgent


def written(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines)
    )
    return path


def test_a_file_of_tasks_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    path = written(
        tmp_path,
        {"id": "one", "prompt": "Fix it.", "files": "repo", "check": "make test", "timeout": "10m"},
        b"",
        {
            "id": "two",
            "prompt": "Say hello.",
            "check": ["grep", "hello"],
            "metadata": {"level": 2},
            "timeout": "none",
        },
    )
    one, two = proctor.load_tasks(path)
    assert (one.files, one.timeout, one.check) == (str(tmp_path / "repo"), 600.0, "make test")
    assert (two.check, two.metadata, two.timeout) == (["grep", "hello"], {"level": 2}, float("inf"))


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        (b"{not json", ["is not JSON"]),
        ([1], ["must be a JSON object, got list"]),
        ({"id": "x"}, ["prompt is missing"]),
        ({"id": "x", "prompt": " "}, ["prompt must be a text that is not blank, got ' '"]),
        (
            {"id": "x", "prompt": "p", "chek": "true"},
            ["chek is not a field of a task (did you mean 'check'"],
        ),
        (
            {"id": "x", "prompt": "p", "timeout": "soon"},
            ["timeout must be a duration such as 90, '30s' or '1h30m'"],
        ),
        ({"id": "x", "prompt": "p", "files": "absent"}, ["files must be the path of a directory, got"]),
        (
            {"id": "x", "prompt": "p", "check": [1]},
            ["check must be a line for the shell, or a list of a program"],
        ),
        ({"id": "x", "prompt": "p", "schema": {"type": "nonsense"}}, ["schema "]),
        (
            {"id": "x", "prompt": "p", "files": ".", "repository": "."},
            ["repository and files exclude each other"],
        ),
        ({"prompt": "p", "metadata": 3}, ["id is missing", "metadata must be an object, got 3"]),
        ({"id": "first", "prompt": "p"}, ["id 'first' is that of line 1: give each task an id of its own"]),
    ],
)
def test_each_fault_of_a_line_is_named_with_its_place(tmp_path: Path, line: Any, faults: list[str]) -> None:
    path = written(tmp_path, {"id": "first", "prompt": "p"}, line)
    with pytest.raises(proctor.TaskFaults) as caught:
        proctor.load_tasks(path)
    found = caught.value.faults
    assert [text[: len(f"{path}:2: {fault}")] for text, fault in zip(found, faults, strict=True)] == [
        f"{path}:2: {fault}" for fault in faults
    ]


def test_a_file_without_tasks_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(proctor.TaskFaults, match="has no tasks"):
        proctor.load_tasks(written(tmp_path))
    with pytest.raises(proctor.TaskFaults, match=r"absent: cannot be read: No such file"):
        proctor.load_tasks(tmp_path / "absent")


def test_a_task_is_checked_when_it_is_made() -> None:
    with pytest.raises(BadOption, match="task 'x': check must be a line for the shell"):
        proctor.BatchTask(id="x", prompt="p", check=())


def tasks(*ids: str, prompt: str = "p") -> list[proctor.BatchTask]:
    return [proctor.BatchTask(id=id, prompt=prompt) for id in ids]


async def collected(batch: proctor.Batch) -> list[proctor.BatchResult]:
    return sorted([result async for result in batch], key=lambda result: result.key)


async def test_a_second_batch_runs_what_the_file_does_not_have(
    no_leaks: Path, scripted_agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent, path = scripted_agent({"reply": "Hello"}), tmp_path / "r" / "results.jsonl"
    first = await collected(proctor.batch(tasks("a", "b"), agent, results=path))
    assert proctor.load_results(path) == sorted(first, key=lambda result: result.at)
    batch = proctor.batch(tasks("a", "b", "c"), agent, results=path)
    second = await collected(batch)
    assert [result.task for result in second] == ["a", "b", "c"]
    assert second[:2] == first
    assert (batch.progress.done, batch.progress.kept) == (3, 2)
    assert len(path.read_bytes().splitlines()) == 3


async def test_what_a_kill_left_of_a_line_is_cut_off_and_not_paid_for_again(
    no_leaks: Path, scripted_agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent, path = scripted_agent({"reply": "Hello"}), tmp_path / "results.jsonl"
    [first] = await collected(proctor.batch(tasks("a"), agent, results=path))
    path.write_bytes(path.read_bytes()[:-20])
    assert proctor.load_results(path) == []
    [again] = await collected(proctor.batch(tasks("a"), agent, results=path))
    # its end is in the store: no second recording was made
    assert (again.text, again.tries) == (first.text, first.tries)
    assert proctor.load_results(path) == [again]


async def test_a_workspace_that_a_kill_left_behind_its_result_is_removed(
    scripted_agent: ScriptedAgent, tmp_path: Path
) -> None:
    path, where = tmp_path / "r.jsonl", tmp_path / "where"
    work = [proctor.BatchTask(id="a", prompt="hi", check=f"pwd > {where}")]
    agent = scripted_agent({"reply": "done"})
    [first] = await collected(proctor.batch(work, agent, results=path))
    left = tmp_path / "r.jsonl.state/work" / where.read_text().strip().rpartition("/")[2]
    assert not left.exists()
    left.mkdir()
    assert await collected(proctor.batch(work, agent, results=path)) == [first]
    assert not left.exists()


async def test_a_task_that_has_changed_is_not_mixed_with_old_results(
    no_leaks: Path, scripted_agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent, path = scripted_agent({"reply": "Hello"}), tmp_path / "results.jsonl"
    await collected(proctor.batch(tasks("a"), agent, results=path))
    with pytest.raises(
        BadOption, match=r"results.jsonl:1: is a result of another version of task 'a' or agent 'agent'"
    ):
        await collected(proctor.batch(tasks("a", prompt="other"), agent, results=path))


async def test_a_line_that_is_no_result_is_named(scripted_agent: ScriptedAgent, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"task": "a"}\n')
    with pytest.raises(BadOption, match=r"results.jsonl:1: is no result of a batch \(.*agent"):
        await collected(proctor.batch(tasks("a"), scripted_agent({"reply": "Hello"}), results=path))


async def test_a_file_has_one_writer(no_leaks: Path, scripted_agent: ScriptedAgent, tmp_path: Path) -> None:
    agent, path = scripted_agent({"sleep": 60}, {"reply": "Hello"}), tmp_path / "results.jsonl"
    async with proctor.batch(tasks("a"), agent, results=path) as first, trio.open_nursery() as nursery:
        nursery.start_soon(anext, first)
        # it reads its file only when it has the lock
        with trio.fail_after(30):
            await _until(lambda: path.exists())
        with pytest.raises(StoreInUse):
            await collected(proctor.batch(tasks("a"), agent, results=path))
        nursery.cancel_scope.cancel()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # another task of the batch makes the file, without an event for others
        await trio.sleep(0.01)
