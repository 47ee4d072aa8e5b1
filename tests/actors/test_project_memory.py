from __future__ import annotations

from pathlib import Path

from proctor.actors.plan.plan import claude_plan, codex_plan
from proctor.actors.plan.project_memory import MAX_FILE, memory_above, settings_left_out


def project(root: Path) -> Path:
    """A repository below a folder with memory of its own; returns the working folder `a/b` in it."""
    folder = root / "repo" / "a" / "b"
    (folder / ".claude").mkdir(parents=True)
    (root / "repo" / ".git").mkdir()
    for path, text in (("CLAUDE.md", "OUTSIDE"), ("repo/CLAUDE.md", "TOP"), ("repo/a/b/CLAUDE.md", "OWN")):
        (root / path).write_text(text)
    return folder


def test_memory_comes_from_the_folders_above_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    folder = project(tmp_path)
    middle = tmp_path / "repo" / "a" / ".claude"
    middle.mkdir()
    (middle / "CLAUDE.md").write_text("MIDDLE")
    assert memory_above(folder) == (
        f"# {tmp_path}/repo/CLAUDE.md\n\nTOP\n# {tmp_path}/repo/a/.claude/CLAUDE.md\n\nMIDDLE"
    )


def test_the_root_of_a_repository_and_a_folder_outside_of_any_have_no_memory_above(tmp_path: Path) -> None:
    project(tmp_path)
    assert memory_above(tmp_path / "repo") == ""
    assert memory_above(tmp_path) == ""


def test_a_worktree_of_git_ends_the_search_as_a_repository_does(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder.parent / ".git").write_text("gitdir: elsewhere\n")
    (folder.parent / "CLAUDE.md").write_text("TREE")
    assert memory_above(folder).endswith("TREE")
    assert "TOP" not in memory_above(folder)


def test_memory_that_is_a_folder_too_long_or_no_text_does_no_harm(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (tmp_path / "repo" / "CLAUDE.md").write_bytes(b"\xff" + b"x" * (2 * MAX_FILE))
    (folder.parent / "CLAUDE.md").mkdir()
    assert len(memory_above(folder)) < MAX_FILE + 1000


def test_only_settings_that_are_there_are_named(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert settings_left_out(folder, {}) == []
    (folder / ".claude" / "settings.local.json").write_text("{}")
    home = tmp_path / "home"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text("{}")
    named = settings_left_out(folder, {"HOME": str(home)})
    assert named == [folder / ".claude" / "settings.local.json", home / ".claude" / "settings.json"]
    assert settings_left_out(folder, {"HOME": str(home), "CLAUDE_CONFIG_DIR": "/nowhere"}) == named[:1]


def test_only_an_isolated_claude_is_given_the_memory_above_its_folder(tmp_path: Path) -> None:
    folder = project(tmp_path)

    def above(**options: bool) -> str:
        plan = claude_plan("a", {"cwd": folder, **options})  # type: ignore[typeddict-item]
        return plan.opening(resume=None, fork=False).memory_above

    assert "TOP" in above()
    assert above(project_memory=False) == above(user_settings=True) == ""
    assert codex_plan("a", {"cwd": folder}).opening(resume=None, fork=False).memory_above == ""
