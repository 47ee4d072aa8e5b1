"""Codex by `codex exec --json`: one prompt, one turn, then the end of the process.

Guarantees: the prompt is text on stdin, never an argument. An `error` line is no end: only `turn.completed` and
`turn.failed` are. A failure has only a text, so a table of patterns gives its cause. Nothing can be
asked or answered: the CLI refuses what would need an approval, often without a line of it.

The usage it reports is the whole thread's, so a resumed run has none of its own to tell. A session id that is not a
UUID is taken for a name and, when it is unknown, quietly begins another thread: it is refused before the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from proctor.protocols.attachment import files
from proctor.protocols.codex import command, items, mcp_servers
from proctor.protocols.codex.errors import by_words, status_of
from proctor.protocols.codex.schemas import strict_schema
from proctor.protocols.codex.turns import reach_limit, say, state_of, structured_output, unkept
from proctor.protocols.codex.wire import ErrorMessage, Item, ThreadTokens, usage_of
from proctor.protocols.dialect import Command, Dialect, Launch, Memo, Out, StopStep, Version
from proctor.protocols.errors import Misuse
from proctor.protocols.lenient import Refusal, decoded, recovered
from proctor.protocols.turns import begin_turn, end_turn, write_text
from proctor.protocols.vocabulary import (
    AnyEvent,
    Ending,
    Garbled,
    Misplaced,
    Notice,
    Retrying,
    Started,
    Unrecognized,
    Usage,
)

SCHEMA = "schema.json"
"""The file that the schema of the answer is written to."""

_ATTEMPT = re.compile(r"Reconnecting\.\.\. (?:(\d+)/(\d+)|waiting)", re.ASCII)
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SNAKE = re.compile(r"_([a-z])")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A line as it came; `item` writes its names in snake case."""

    type: str = ""
    thread_id: str | None = None
    item: msgspec.Raw = msgspec.Raw(b"")
    usage: ThreadTokens | None = None
    error: ErrorMessage = ErrorMessage()
    message: str = ""


_decode = msgspec.json.Decoder(Frame).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def launch(options: Launch) -> Command:
    """The command line of a launch. Raises Misuse for a session id that is not a UUID, or a schema not JSON."""
    # A name that is not known begins another thread without a word (0.169).
    if options.resume is not None and _UUID.fullmatch(options.resume) is None:
        raise Misuse(f"resume must be a thread's UUID, got {options.resume!r}", request="launch")
    verb = ("fork" if options.fork else "resume",) if options.resume is not None else ()
    thread = (options.resume,) if options.resume is not None else ()
    argv = (
        *options.executable,
        "exec",
        *verb,
        "--json",
        "--skip-git-repo-check",
        *command.ISOLATION,
        *command.settings(options),
        *_flags(options),
        *mcp_servers.arguments(options),
        *options.extra,
        *command.retries(options),
        *thread,
        # `-` has the prompt read from stdin: as an argument it would be seen by every user of the machine.
        "-",
    )
    schema = {} if command.schema_of(options) is None else {SCHEMA: options.json_schema or ""}
    return Command(
        argv=argv,
        env=mcp_servers.environment(options),
        files={**schema, **mcp_servers.files(options), **files(options.attachments)},
        ignored=_ignored(options),
    )


def _flags(options: Launch) -> Iterator[str]:
    if not options.user_settings:
        yield "--ignore-user-config"
    if options.persist is False:
        yield "--ephemeral"
    if options.model is not None:
        yield f"--model={options.model}"
    if options.sandbox is not None:
        yield from command.setting("sandbox", "sandbox_mode", options.sandbox)
    if options.append_system_prompt is not None:
        yield from command.setting(
            "append_system_prompt", "developer_instructions", options.append_system_prompt
        )
    if options.json_schema is not None:
        yield f"--output-schema={options.scratch}/{SCHEMA}"
    for name in files(options.attachments):
        yield f"--image={options.scratch}/{name}"


def _ignored(options: Launch) -> tuple[str, ...]:
    names = command.ignored(options)
    names += [name for name in ("system_prompt",) if getattr(options, name)]
    if options.permission_mode not in (None, "never"):
        names.append("permission_mode")
    return tuple(names)


def read(memo: Memo, line: bytes) -> Out:
    """The events of one line."""
    try:
        frame, odd = _decode(line), list[AnyEvent]()
    except Refusal:
        if isinstance(read := recovered(memo, Frame, line), Garbled):
            return (read,)
        frame, odd = read
    reader = _READERS.get(frame.type)
    if reader is None:
        return (*odd, Unrecognized(memo.frame, memo.turn, frame.type or "untyped"))
    return (*odd, *reader(memo, frame)) or memo.ignore(frame.type)


def _read_thread(memo: Memo, frame: Frame) -> list[AnyEvent]:
    options, match = memo.launch, frame.thread_id or ""
    memo.session_id = match
    started: list[AnyEvent] = [Started(memo.frame, memo.turn, match, model=options.model)]
    # An id that is not known begins another thread without a word (0.169).
    if options.resume is not None and not options.fork and match.lower() != options.resume.lower():
        text = f"the session {options.resume} was not found; the CLI started a new one"
        started.append(Notice(memo.frame, memo.turn, "session_changed", text, {"session": options.resume}))
    return started


def _read_turn(memo: Memo, frame: Frame) -> list[AnyEvent]:
    if memo.open_turns:
        # A second beginning would end the first turn unseen; `exec` has one turn.
        return [Misplaced(memo.frame, memo.turn, frame.type, "")]
    return [begin_turn(memo, memo.waiting_prompts()[:1])]


def _read_begun(memo: Memo, frame: Frame) -> list[AnyEvent]:
    item, odd = _item(memo, frame)
    return odd if odd and not item.type else [*odd, *items.starts(memo, item, memo.turn, None)]


def _read_completed(memo: Memo, frame: Frame) -> list[AnyEvent]:
    item, odd = _item(memo, frame)
    if item.type == "agentMessage" and item.text:
        say(memo, item.text)
    return odd if odd and not item.type else [*odd, *items.completes(memo, item, memo.turn, None)]


def _item(memo: Memo, frame: Frame) -> tuple[Item, list[AnyEvent]]:
    """The item in the spelling of the app server, which says the same in camel case."""
    try:
        members = {_camel(name): value for name, value in _members(frame.item).items()}
        kind = _camel(msgspec.json.decode(members.get("type", b'""'), type=str))
    except Refusal as error:
        return Item(), [Unrecognized(memo.frame, memo.turn, f"{frame.type}.item", str(error))]
    whole = msgspec.json.encode({**members, "type": kind})
    return decoded(memo, Item, whole, f"{frame.type}.item")


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda match: match[1].upper(), name)


def _read_error(memo: Memo, frame: Frame) -> list[AnyEvent]:
    text = frame.message
    match = _ATTEMPT.match(text)
    # `Reconnecting...` is an error line, but no end: the CLI goes on trying.
    if match is not None:
        attempt, most = (int(match[1]), int(match[2])) if match[1] else (0, None)
        return [Retrying(memo.frame, memo.turn, attempt, most, 0.0, status_of(text), text)]
    limit = reach_limit(memo) if by_words(text) == "limit" else []
    return [*limit, Notice(memo.frame, memo.turn, "api_failure", text, {"status": status_of(text)})]


def _read_done(memo: Memo, frame: Frame) -> list[AnyEvent]:
    structured, misfit = structured_output(memo, "completed")
    return _end(
        memo,
        "schema_unmet" if misfit else "completed",
        text=state_of(memo).text,
        error=misfit or unkept(memo),
        usage=_usage(memo, frame.usage),
        structured_output=structured,
    )


def _read_failed(memo: Memo, frame: Frame) -> list[AnyEvent]:
    text = frame.error.message
    ending = by_words(text)
    limit = reach_limit(memo) if ending == "limit" else []
    return [*limit, *_end(memo, ending, error=text or "it failed without a message", status=status_of(text))]


def _end(memo: Memo, ending: Ending, **fields: Any) -> list[AnyEvent]:
    # A refusal may come without `turn.started`.
    begun = [] if memo.open_turns else _read_turn(memo, Frame("turn.started"))
    ended = end_turn(memo, memo.open_turns[-1], ending, model=memo.model or memo.launch.model, **fields)
    state_of(memo).forget_turn()
    return [*begun, ended]


def _usage(memo: Memo, tokens: ThreadTokens | None) -> Usage | None:
    if tokens is None or memo.resumed or memo.launch.resume is not None:
        return None  # the thread's, and what it had before is not known
    return usage_of(tokens)


_READERS: Mapping[str, Callable[[Memo, Frame], list[AnyEvent]]] = {
    "error": _read_error,
    "item.completed": _read_completed,
    "item.started": _read_begun,
    "item.updated": lambda memo, frame: [],
    "thread.started": _read_thread,
    "turn.completed": _read_done,
    "turn.failed": _read_failed,
    "turn.started": _read_turn,
}

EVERY: Version = (0, 0, 0)

CODEX_EXEC = Dialect(
    name="codex",
    launch=launch,
    read=read,
    write=write_text,
    takes=command.takes,
    # Only SIGTERM: `exec` ignores SIGINT while its reader is stalled.
    stop=(StopStep("terminate", 6.0), StopStep("kill", 0.0)),
    oldest=(0, 169, 0),
    newest_tested=(0, 169, 0),
    schema_form=strict_schema,
    capabilities={"fork": EVERY, "host_tools": EVERY, "resume": EVERY, "structured_output": EVERY},
    relayed=frozenset({"oneshot"}),
)
"""The dialect of `codex exec --json` 0.169.0. A SIGTERM kills it at once; what its tools started is swept behind it."""
