"""Project memory: the instructions for coding agents that a project keeps in its tree (CLAUDE.md and its kin).

Claude Code ties its memory files to its settings files: where the settings are left out, so is the memory. With
`--add-dir` it loads the memory of a folder and no settings, so the working folder is added, and what the folders
above it hold, up to the root of the repository, is written into one file in the agent's private folder. So neither hooks
nor permission rules of a project come with its memory, and no folder is opened that was closed.

Codex and OpenCode read their AGENTS.md without their settings. Gemini CLI reads GEMINI.md in folders that its user trusts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MEMORY_FILES = ("CLAUDE.md", ".claude/CLAUDE.md")
"""Where Claude Code 2.1.197 to 2.1.330 looks in each folder, in this order."""

SETTINGS_FILES = (".claude/settings.json", ".claude/settings.local.json")
"""A project's settings of Claude Code: hooks, permission rules, environment."""

MAX_FILE = 256 * 1024
"""Bytes of a memory file; the rest of a longer one is cut."""


def memory_above(cwd: Path) -> str:
    """The memory of the folders above `cwd`, outermost first, up to the root of its git repository.

    Each file begins with a line that names it. Empty without a repository, at its root, or where nothing is there to
    read.
    """
    parts = [
        f"# {file}\n\n{text}"
        for folder in reversed(_repository_above(cwd))
        for file in (folder / name for name in MEMORY_FILES)
        if (text := _text(file))
    ]
    return "\n".join(parts)


def settings_left_out(cwd: Path, env: Mapping[str, str]) -> list[Path]:
    """The settings files of Claude Code that are there and that an isolated agent does not read."""
    folders = [*_repository_above(cwd), cwd.absolute()]
    files = [folder / name for folder in folders for name in SETTINGS_FILES]
    if (personal := _personal(env)) is not None:
        files.append(personal / "settings.json")
        files.append(personal / "CLAUDE.md")
    return [file for file in dict.fromkeys(files) if _is_file(file)]


def _repository_above(cwd: Path) -> list[Path]:
    """The folders above `cwd`, innermost first, that belong to the same git repository."""
    inside = list[Path]()
    for folder in (cwd.absolute(), *cwd.absolute().parents):
        inside.append(folder)
        if (folder / ".git").exists():  # a worktree has a file there
            return inside[1:]
    return []


def _personal(env: Mapping[str, str]) -> Path | None:
    if configured := env.get("CLAUDE_CONFIG_DIR"):
        return Path(configured)
    return Path(env["HOME"], ".claude") if env.get("HOME") else None


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE).decode("utf-8", "replace")
    except OSError:  # none there, or none that we may read
        return ""


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False
