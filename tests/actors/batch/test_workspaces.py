from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.testing.fixtures import ScriptedAgent

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")


def git(folder: Path, *words: str) -> str:
    return subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


async def only(batch: proctor.Batch) -> proctor.BatchResult:
    [result] = [result async for result in batch]
    return result


def task(**fields: Any) -> proctor.BatchTask:
    given: dict[str, Any] = {"id": "one", "prompt": "hello", **fields}
    return proctor.BatchTask(**given)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.mark.parametrize(
    ("check", "score", "cause"),
    [
        ("exit 0", 1.0, None),
        ("exit 3", 0.0, None),
        (["grep", "-q", "Hello, hello", "-"], 1.0, None),
        ("""echo some words; echo '{"score": 0.25, "passed": 1}'; exit 1""", 0.25, None),
        ("""echo '{"score": 7}'""", 1.0, None),
        (
            "cat a.txt setup.txt && test $PROCTOR_TASK.$PROCTOR_AGENT.$PROCTOR_REPETITION = one.agent.1",
            1.0,
            None,
        ),
        (["no-such-program"], 0.0, "check"),
        ("sleep 60 & sleep 60", 0.0, "check"),
    ],
)
async def test_a_check_scores_the_work(
    no_leaks: Path, scripted_agent: ScriptedAgent, source: Path, check: Any, score: float, cause: str | None
) -> None:
    one = task(files=source, setup="cp a.txt setup.txt", check=check, command_timeout=2.0)
    result = await only(proctor.batch([one], scripted_agent({"reply": "Hello, {prompt}"})))
    assert (result.score, result.cause) == (score, cause)
    assert (source / "a.txt").read_text() == "one\n"
    assert not (source / "setup.txt").exists()


async def test_a_failed_set_up_is_a_failed_attempt_and_asks_nobody(
    no_leaks: Path, scripted_agent: ScriptedAgent, source: Path
) -> None:
    one = task(files=source, setup="echo no compiler >&2; exit 4")
    result = await only(proctor.batch([one], scripted_agent({"reply": "Hello"})))
    assert (result.score, result.cause, result.tries) == (0.0, "setup", ())
    assert result.error == "setup ended with status 4: no compiler"


async def test_a_worktree_is_made_at_the_commit_and_removed(
    no_leaks: Path, scripted_agent: ScriptedAgent, source: Path, tmp_path: Path
) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        git(source, *words)
    (source / "a.txt").write_text("two\n")
    git(source, "commit", "-q", "-am", "two")
    one = task(repository=source, commit="HEAD~1", check="test $(cat a.txt) = one && echo three > a.txt")
    result = await only(
        proctor.batch([one], scripted_agent({"reply": "Hello"}), results=tmp_path / "results.jsonl")
    )
    assert (result.score, result.error) == (1.0, None)
    assert len(git(source, "worktree", "list").splitlines()) == 1
    assert list((tmp_path / "results.jsonl.state" / "work").iterdir()) == []


async def test_a_commit_that_is_not_there_is_a_failed_attempt(
    no_leaks: Path, scripted_agent: ScriptedAgent, source: Path
) -> None:
    result = await only(proctor.batch([task(repository=source)], scripted_agent({"reply": "Hello"})))
    assert (result.cause, result.score) == ("setup", 0.0)
    assert "no workspace for task 'one': fatal: not a git repository" in str(result.error)


@pytest.mark.parametrize(
    ("keep", "check", "kept"), [("failed", "exit 1", 1), ("failed", "exit 0", 0), ("all", "exit 0", 1)]
)
async def test_workspaces_are_kept_as_asked(
    no_leaks: Path,
    scripted_agent: ScriptedAgent,
    source: Path,
    tmp_path: Path,
    keep: Any,
    check: str,
    kept: int,
) -> None:
    one, path = task(files=source, check=check), tmp_path / "r.jsonl"
    result = await only(proctor.batch([one], scripted_agent({"reply": "Hello"}), results=path, keep=keep))
    assert (result.workspace is not None) == bool(kept)
    assert [
        (place / "a.txt").is_file() for place in (tmp_path / "r.jsonl.state/work").iterdir() if place.is_dir()
    ] == [True] * kept


async def test_an_agent_that_is_not_installed_is_refused_before_anything_runs(
    source: Path, tmp_path: Path
) -> None:
    absent = proctor.claude("a", executable=tmp_path / "absent")
    with pytest.raises(proctor.AgentError, match="absent"):
        await only(
            proctor.batch([task(setup="touch began", files=source)], absent, results=tmp_path / "r.jsonl")
        )
    assert not (tmp_path / "r.jsonl").exists()
