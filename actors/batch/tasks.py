"""Tasks of a batch: records that are checked when they are made, and files of them (JSON Lines).

A fault of a file names the file, the line and the field. One reading finds every fault, before anything runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec

from proctor.actors.durations import limit
from proctor.actors.errors import AgentError, BadOption, OptionFault
from proctor.actors.plan.option_checks import (
    FOLDER,
    NAME,
    PROMPT,
    SECONDS,
    TEXTS,
    WORD,
    OptionRule,
    is_text,
    suggest_or_list,
)
from proctor.actors.structured.schemas import schema_of
from proctor.protocols.lenient import Refusal
from proctor.runtime.error_facts import InvalidInput

Argv = str | Sequence[str]
"""A command: a line for `/bin/sh`, or a program and its arguments."""

TIMEOUT = 600.0
"""Seconds that an agent may work on a task, and each of its commands may take, by default."""


def _is_command(value: object) -> bool:
    return bool(value) and (is_text(value) or TEXTS.takes(value))


_COMMAND = OptionRule("a line for the shell, or a list of a program and its arguments", _is_command)
_FOLDER = attrs.evolve(FOLDER, optional=True)
_OPTIONAL_COMMAND = attrs.evolve(_COMMAND, optional=True)
_MAPPING = OptionRule("an object", lambda value: isinstance(value, Mapping))
RULES: Mapping[str, OptionRule] = {
    "id": NAME,
    "prompt": PROMPT,
    "files": _FOLDER,
    "repository": _FOLDER,
    "commit": WORD,
    "setup": _OPTIONAL_COMMAND,
    "check": _OPTIONAL_COMMAND,
    "timeout": SECONDS,
    "command_timeout": SECONDS,
    "metadata": _MAPPING,
}
"""Field of a task → what it accepts. `schema` is checked by what it declares."""


@attrs.frozen(kw_only=True)
class BatchTask:
    """One task: what is asked of each agent, where, and how its work is scored.

    The agent works in a copy of the folder `files`, or in a git worktree of `repository` at `commit` ("HEAD"); without either in its
    own `cwd`, or in an empty folder where it has none. `setup` runs there before the prompt, `check` after the answer: each is a line for the
    shell or a program with its arguments. The exit status of the check is the score, 1 for status 0 and else 0, unless its last line of output is
    a JSON object with a number `score` from 0 to 1. Without a check an answer scores 1.

    `timeout` are seconds of working time, `command_timeout` those for each command; 600 by default, infinite for no limit. `schema` declares the
    answer as for `proctor.ask`. `metadata` is carried into the results. Raises `BadOption`.
    """

    id: str
    prompt: str
    files: str | Path | None = None
    repository: str | Path | None = None
    commit: str = "HEAD"
    setup: Argv | None = None
    check: Argv | None = None
    timeout: float = TIMEOUT
    command_timeout: float = TIMEOUT
    schema: object = None
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    def __attrs_post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in attrs.fields(BatchTask)}
        if faults := list(_faults(given)):
            raise BadOption("\n".join(f"task {self.id!r}: {fault}" for fault in faults), faults)

    @property
    def digest(self) -> str:
        """The same for two tasks that ask the same. The content of their folders does not count."""
        schema = None if self.schema is None else dict(schema_of(self.schema).json)
        commands = [
            one if one is None or isinstance(one, str) else list(one) for one in (self.setup, self.check)
        ]
        places = [None if one is None else str(one) for one in (self.files, self.repository)]
        parts = (self.prompt, places, self.commit, commands, self.timeout, schema)
        return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:12]


def _faults(given: Mapping[str, Any]) -> Iterator[OptionFault]:
    for name, rule in RULES.items():
        if name in given and (fault := rule.fault(given[name])) is not None:
            yield OptionFault(name, fault)
    if given.get("files") is not None and given.get("repository") is not None:
        yield OptionFault("repository", "and files exclude each other: leave one of them out")
    if given.get("schema") is not None:
        try:
            schema_of(given["schema"])
        except BadOption as error:
            yield OptionFault("schema", str(error).removeprefix("schema ").splitlines()[0])


class TaskFaults(InvalidInput, AgentError, ValueError):
    """A file of tasks is invalid; `faults` holds every fault, each a line that begins with the file and its line there."""

    remedy = "correct the lines that it names"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def load_tasks(path: str | Path) -> list[BatchTask]:
    """Read a file of tasks: a JSON object on each line, with the fields of `BatchTask`; durations may be texts such as "10m", and paths are
    relative to the file. Blank lines are skipped. Raises `TaskFaults` with every fault."""
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TaskFaults([f"{path}: cannot be read: {error.strerror or error}"]) from None
    tasks, faults, seen = list[BatchTask](), list[str](), dict[str, int]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        at = f"{path}:{number}"
        try:
            task = _task(line, path.parent)
        except BadOption as error:
            faults += [f"{at}: {fault}" for fault in error.faults]
            continue
        if (first := seen.setdefault(task.id, number)) != number:
            faults.append(f"{at}: id {task.id!r} is that of line {first}: give each task an id of its own")
        tasks.append(task)
    if not tasks and not faults:
        faults.append(f"{path}: has no tasks: write a JSON object with id and prompt on each line")
    if faults:
        raise TaskFaults(faults)
    return tasks


def _task(line: bytes, folder: Path) -> BatchTask:
    try:
        table: object = msgspec.json.decode(line)
    except Refusal as error:
        text = f"is not JSON: {error}"
        raise BadOption(text, [OptionFault("", text)]) from None
    if not isinstance(table, dict):
        text = f"must be a JSON object, got {type(table).__name__}"
        raise BadOption(text, [OptionFault("", text)])
    given = cast("dict[str, Any]", table)
    known = [field.name for field in attrs.fields(BatchTask)]
    faults = [
        OptionFault(name, f"is not a field of a task{suggest_or_list(name, known)}")
        for name in given.keys() - known
    ]
    faults += [OptionFault(name, "is missing") for name in ("id", "prompt") if name not in given]
    for name in ("files", "repository"):
        if isinstance(given.get(name), str) and given[name]:
            given[name] = os.path.join(folder, os.path.expanduser(given[name]))
    for name in ("timeout", "command_timeout"):
        if name in given:
            try:
                given[name] = limit(given[name])
            except ValueError as error:
                faults.append(OptionFault(name, str(error).replace("expected", "must be", 1)))
                del given[name]
    if faults:
        faults += _faults(given)
        raise BadOption("\n".join(map(str, faults)), sorted(faults, key=str))
    return BatchTask(**given)
