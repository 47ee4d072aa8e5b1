from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import pytest
import trio

import proctor
from proctor.actors.plan.workspaces import Workspace, clean_up_workspaces
from proctor.protocols import vocabulary as v
from proctor.runtime.spec import ChildSpec
from tests.actors.far_end import Step, plan_of, played, write_script

SOURCE = Path(__file__).parents[2] / "src"
IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@localhost")
WHERE: Sequence[Step] = ({"reply": "{cwd}"},)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def write(folder: Path, *steps: str) -> Sequence[Step]:
    """A turn in which a tool runs these commands in the agent's folder."""
    command = " && ".join(steps)
    return ({"tool": "Bash", "input": {"command": command}, "run": command}, {"reply": "{cwd}"})


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "inner").mkdir(parents=True)
    git(folder, "init", "--quiet", "-b", "main")
    (folder / "inner" / "file").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


def agent_of(
    tmp_path: Path,
    repo: Path,
    steps: Sequence[Step] = WHERE,
    name: str = "a",
    *faults: str,
    **more: Unpack[proctor.SpecOptions],
) -> ChildSpec:
    options: proctor.SpecOptions = {
        "shutdown": 3,
        "cwd": repo,
        "workspace": "worktree",
        "env": {"CLAUDE_CONFIG_DIR": str(tmp_path / "state")},
        "allowed_tools": ("Bash",),
        **more,
    }
    return proctor.scripted(name, write_script(tmp_path, steps), faults=faults, **options)


def place_of(repo: Path, name: str = "a") -> Path:
    return repo / ".git" / "proctor" / "worktrees" / name


def branches(repo: Path) -> list[str]:
    return git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def kept(events: Sequence[v.AnyEvent]) -> list[str]:
    return [e.text for e in events if isinstance(e, v.Notice) and e.code == "workspace_kept"]


async def test_an_agent_works_in_a_worktree_of_its_own_that_goes_when_it_is_clean(
    tmp_path: Path, repo: Path
) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, repo)]) as sup:
        answer = await sup.agent("a").ask("where?")
        assert answer.text == str(place_of(repo))
        assert branches(repo) == ["main", "proctor/a"]
        assert (place_of(repo) / "inner" / "file").read_text() == "one\n"
    assert not place_of(repo).exists()
    assert branches(repo) == ["main"]
    assert git(repo, "worktree", "list").count("\n") == 0


async def test_a_folder_within_the_repository_is_the_same_folder_of_the_worktree(
    tmp_path: Path, repo: Path
) -> None:
    trees = tmp_path / "trees"
    spec = agent_of(tmp_path, repo / "inner", worktrees=trees)
    async with proctor.open_supervisor([spec]) as sup:
        assert (await sup.agent("a").ask("where?")).text == str(trees / "a" / "inner")
    assert not (trees / "a").exists()


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        (["echo two > inner/file"], "1 file changed or new and not committed"),
        (["touch x y"], "2 files changed or new and not committed"),
        (
            ["git -c user.name=t -c user.email=t@x commit -q --allow-empty -m two"],
            "1 commit on no other branch",
        ),
        (
            [
                "git checkout -q --detach",
                "git -c user.name=t -c user.email=t@x commit -q --allow-empty -m two",
            ],
            "1 commit on no other branch",
        ),
        (["git worktree lock ."], "locked working tree"),
        (["git bisect start -q"], "an operation of git is half done (BISECT_LOG)"),
    ],
    ids=["changed", "untracked", "committed", "committed beside its branch", "locked", "half done"],
)
async def test_a_worktree_in_which_something_would_be_lost_stays_and_a_notice_says_why(
    commands: list[str], why: str, tmp_path: Path, repo: Path
) -> None:
    plan = plan_of(tmp_path, write(repo, *commands), cwd=repo, workspace="worktree", allowed_tools=("Bash",))
    answer, events = await played(plan)
    place = place_of(repo, "agent")
    assert answer.text == str(place)
    [told] = kept(events)
    assert told.startswith(f"the worktree {place} stays: ")
    assert why in told
    assert place.is_dir()
    assert branches(repo) == ["main", "proctor/agent"]


async def test_commits_that_another_branch_has_are_not_lost_with_the_worktree(
    tmp_path: Path, repo: Path
) -> None:
    commands = ["git -c user.name=t -c user.email=t@x commit -q --allow-empty -m two", "git branch -q kept"]
    plan = plan_of(tmp_path, write(repo, *commands), cwd=repo, workspace="worktree", allowed_tools=("Bash",))
    _, events = await played(plan)
    assert kept(events) == []
    assert branches(repo) == ["kept", "main"]


async def test_a_worktree_is_kept_over_restarts_and_gone_on_with_by_the_next_of_its_name(
    tmp_path: Path, repo: Path
) -> None:
    steps = (*write(repo, "touch kept"), {"fault": "crash@once"}, *write(repo, "ls"))
    async with proctor.open_supervisor([agent_of(tmp_path, repo, steps)]) as sup:
        agent = sup.agent("a")
        assert (await agent.ask("one")).ok
        with pytest.raises(proctor.MaybeExecuted):
            await agent.ask("two")
        assert (await agent.ask("three")).text == str(place_of(repo))
        assert (await agent.status()).incarnation == 2
    assert (place_of(repo) / "kept").is_file()
    async with proctor.open_supervisor([agent_of(tmp_path, repo)]) as sup:
        assert (await sup.agent("a").ask("where?")).text == str(place_of(repo))
        await until_noticed("workspace_found", sup.agent("a"))
    assert (place_of(repo) / "kept").is_file()


async def until_noticed(code: str, agent: proctor.Agent) -> None:
    with trio.fail_after(30):
        async with agent.events(since=0) as log:
            async for event in log:
                if isinstance(event, v.Notice) and event.code == code:
                    return


async def test_two_agents_of_one_name_are_not_in_one_worktree(tmp_path: Path, repo: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, repo)]):
        with pytest.raises(proctor.StartRefused, match=f"process {os.getpid()} works in it"):
            await proctor.ask(agent_of(tmp_path, repo), "hi")
    assert not place_of(repo).exists()


HOST = """\
import sys, trio
from pathlib import Path
from proctor.actors.plan.workspaces import Workspace

async def main():
    print((await Workspace("a", Path(sys.argv[1])).enter())[0], flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


def left_by_a_killed_host(repo: Path) -> Path:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    argv = [sys.executable, "-c", HOST, str(repo)]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        place = Path(host.stdout.readline().decode().strip())
        host.send_signal(signal.SIGKILL)
    return place


async def test_a_worktree_whose_host_was_killed_is_found_again(tmp_path: Path, repo: Path) -> None:
    place = left_by_a_killed_host(repo)
    (place / "work").touch()
    workspace = Workspace("a", repo)
    found, told = await workspace.enter()
    assert (found, (found / "work").is_file()) == (place, True)
    assert told is not None
    assert told.code == "workspace_found"
    left = await workspace.close()
    assert left is not None
    assert place.is_dir()


async def test_what_was_begun_and_not_finished_is_made_anew(tmp_path: Path, repo: Path) -> None:
    place = place_of(repo)
    place.parent.mkdir(parents=True)
    git(repo, "worktree", "add", "--quiet", "-b", "proctor/a", str(place))
    git(repo, "worktree", "lock", "--reason", "initializing", str(place))
    (place / "inner" / "file").unlink()
    workspace = Workspace("a", repo)
    with pytest.raises(proctor.StartRefused, match="somebody else is making it"):
        await workspace.enter()
    (place.parents[1] / "a.begun").write_text(str(place))
    assert await workspace.enter() == (place, None)
    assert (place / "inner" / "file").read_text() == "one\n"
    assert await workspace.close() is None


async def test_a_worktree_that_was_removed_by_hand_is_made_again_on_its_branch(
    tmp_path: Path, repo: Path
) -> None:
    first = Workspace("a", repo)
    place, _ = await first.enter()
    git(place, "commit", "--quiet", "--allow-empty", "-m", "two")
    assert await first.close() is not None
    shutil.rmtree(place)
    second = Workspace("a", repo)
    assert await second.enter() == (place, None)
    assert git(place, "log", "--format=%s", "-1") == "two"
    assert await second.close() is not None


async def test_a_folder_that_is_not_ours_is_never_written_over(tmp_path: Path, repo: Path) -> None:
    place = place_of(repo)
    place.mkdir(parents=True)
    with pytest.raises(proctor.StartRefused, match="is there and is no worktree of this repository"):
        await proctor.ask(agent_of(tmp_path, repo), "hi")
    assert list(place.iterdir()) == []


async def test_a_worktree_of_the_users_own_is_neither_worked_in_nor_removed(
    tmp_path: Path, repo: Path
) -> None:
    mine = tmp_path / "mine" / "a"
    git(repo, "worktree", "add", "--quiet", "-b", "feature", str(mine))
    with pytest.raises(proctor.StartRefused, match="is a worktree that proctor did not make"):
        await proctor.ask(agent_of(tmp_path, repo, worktrees=mine.parent), "hi")
    assert (mine / "inner" / "file").is_file()
    shutil.rmtree(mine)
    with pytest.raises(proctor.StartRefused, match="its folder is gone"):
        await proctor.ask(agent_of(tmp_path, repo, worktrees=mine.parent), "hi")
    assert str(mine) in git(repo, "worktree", "list")


async def test_a_worktree_without_our_tag_is_gone_on_with_and_never_removed(
    tmp_path: Path, repo: Path
) -> None:
    place = place_of(repo)
    place.parent.mkdir(parents=True)
    git(repo, "worktree", "add", "--quiet", "-b", "proctor/a", str(place))
    workspace = Workspace("a", repo)
    assert (await workspace.enter())[0] == place
    told = await workspace.close()
    assert told is not None
    assert "has no tag of proctor" in told.text
    assert (place / "inner" / "file").is_file()


async def test_a_worktree_whose_host_was_killed_before_it_was_tagged_is_ours(
    tmp_path: Path, repo: Path
) -> None:
    place = place_of(repo)
    place.parent.mkdir(parents=True)
    (place.parents[1] / "a.begun").write_text(str(place))
    git(repo, "worktree", "add", "--quiet", "-b", "proctor/a", str(place))
    workspace = Workspace("a", repo)
    assert (await workspace.enter())[0] == place
    assert await workspace.close() is None
    assert not place.exists()
    assert not (place.parents[1] / "a.begun").exists()


async def test_a_branch_that_somebody_works_on_is_let_alone(tmp_path: Path, repo: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "-b", "proctor/a", str(tmp_path / "mine"))
    with pytest.raises(proctor.StartRefused, match="proctor/a"):
        await proctor.ask(agent_of(tmp_path, repo), "hi")
    assert (tmp_path / "mine" / "inner").is_dir()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (("init", "--quiet", "--bare", "."), "in a bare repository"),
        (("init", "--quiet", "."), "has no commit yet to begin at"),
        ((), "not a git repository"),
    ],
    ids=["bare", "unborn", "none"],
)
async def test_without_a_repository_with_a_commit_the_start_is_refused(
    setting: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    if setting:
        git(folder, *setting)
    with pytest.raises(proctor.StartRefused, match=why):
        await proctor.ask(agent_of(tmp_path, folder), "hi")


async def test_without_git_the_start_is_refused(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(proctor.StartRefused, match="git cannot be run: No such file or directory"):
        await Workspace("a", repo).enter()


@pytest.mark.parametrize("name", ["a b", "a..b", "-a", "a.lock", ".a", "a."])
def test_a_name_that_no_branch_can_have_is_refused_before_anything_starts(
    name: str, tmp_path: Path, repo: Path
) -> None:
    with pytest.raises(proctor.BadOption, match="needs a name of letters"):
        agent_of(tmp_path, repo, name=name)


def test_wrong_values_are_refused(tmp_path: Path, repo: Path) -> None:
    with pytest.raises(proctor.BadOption, match="accepted: shared, worktree"):
        agent_of(tmp_path, repo, workspace="mine")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(proctor.BadOption, match="worktrees has no effect without"):
        agent_of(tmp_path, repo, workspace="shared", worktrees=tmp_path)


async def test_agents_that_come_and_go_leave_no_worktree_behind(tmp_path: Path, repo: Path) -> None:
    async with proctor.open_dynamic_supervisor() as sup:
        for n in range(3):
            ref = await sup.start_child(agent_of(tmp_path, repo, name=f"a{n}"))
            await sup.terminate_child(ref)
        assert branches(repo) == ["main", "proctor/a2"]  # the last is still owed
    assert branches(repo) == ["main"]


async def test_two_that_hold_the_same_commit_alone_do_not_both_go(tmp_path: Path, repo: Path) -> None:
    first, second = Workspace("a", repo), Workspace("b", repo)
    place, _ = await first.enter()
    git(place, "commit", "--quiet", "--allow-empty", "-m", "two")
    other, _ = await second.enter()
    git(other, "reset", "--quiet", "--hard", "proctor/a")
    told: list[v.Notice | None] = []

    async def close(workspace: Workspace) -> None:
        told.append(await workspace.close())

    async with clean_up_workspaces(), trio.open_nursery() as nursery:
        nursery.start_soon(close, first)
        nursery.start_soon(close, second)
    assert sorted(notice is None for notice in told) == [False, True]
    assert "two" in git(repo, "log", "--all", "--format=%s").split()
