"""The Agent Client Protocol as a dialect: how an agent is started, told and stopped. Its frames are read by `frames`.

One process holds one session. Whatever agents disagree on is in the `Profile`; there is no code for any one of them.

An interrupt answers every open question as cancelled, as the protocol asks. There is no request to leave: an agent
leaves when its stdin is closed, which is a rung of the ladder.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from proctor.protocols import jsonrpc
from proctor.protocols.acp import handshake
from proctor.protocols.acp.frames import read
from proctor.protocols.acp.profile import GENERIC, Profile
from proctor.protocols.acp.state import notes
from proctor.protocols.acp.tools import settle_questions, write_decision
from proctor.protocols.acp.turns import takes, used, write_prompt
from proctor.protocols.dialect import Command, Dialect, Launch, Memo
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import (
    AnyRequest,
    Decision,
    EndSession,
    HookVerdict,
    Interrupt,
    Prompt,
    SetModel,
    SetPermissionMode,
    Steer,
    StopTask,
    ToolReturn,
)

HONOURED = frozenset(
    (
        "executable",
        "version",
        "mode",
        "model",
        "resume",
        "fork",
        "partial",
        "permission_mode",
        "mcp",
        "starter",
        "agent",
        "host_tools",
        "effort",
        "cwd",
        "scratch",
        "secret",
        "env",
        "extra",
    )
)
"""Fields of a launch that are honoured, or that ask for nothing."""


def launch(profile: Profile, wanted: Launch) -> Command:
    """The command line. A program that comes with arguments of its own is a whole command already. Raises NotUtf8."""
    wanted.require_utf8()
    arguments = profile.arguments if len(wanted.executable) == 1 else ()
    flags = [
        part
        for field, flag in profile.flags.items()
        if (value := getattr(wanted, field)) is not None
        for part in (flag, value)
    ]
    unserved = (
        ("mcp",) if wanted.mcp and profile.servers == "launch" else ()
    )  # for a launch of its own to honour
    argv = (*wanted.executable, *arguments, *flags, *wanted.extra)
    return Command(argv=argv, ignored=(*ignored(wanted), *unserved))


def ignored(wanted: Launch, honoured: frozenset[str] = HONOURED) -> tuple[str, ...]:
    """The fields that differ from what a launch has by default, and that are not honoured."""
    plain = Launch(executable=(), persist=wanted.persist or None)  # sessions are kept as it is
    fields = (field.name for field in attrs.fields(Launch) if field.name not in honoured)
    names = [name for name in fields if getattr(wanted, name) != getattr(plain, name)]
    if wanted.fork and wanted.resume is None:
        names.append("fork")
    return tuple(names)


def _greet(profile: Profile, memo: Memo) -> bytes:
    notes(memo, profile)
    return handshake.greet(memo)


def _write(profile: Profile, memo: Memo, request: AnyRequest) -> bytes:
    notes(memo, profile)
    match request:
        case Prompt():
            return write_prompt(memo, request)
        case Decision():
            return write_decision(memo, request)
        case Interrupt():
            return _interrupt(memo)
        case SetModel():
            return handshake.set_now(memo, request.id, "model", request.model)
        case SetPermissionMode():
            return handshake.set_now(memo, request.id, "permission_mode", request.mode)
        case Steer() | StopTask() | ToolReturn() | HookVerdict() | EndSession():
            kind = str(request.__struct_config__.tag)
            raise Misuse(f"the Agent Client Protocol has no way to send a {kind!r} request", request=kind)


def _interrupt(memo: Memo) -> bytes:
    if memo.session_id is None:
        return b""
    told: dict[str, Any] = {"sessionId": memo.session_id}
    return jsonrpc.tell("session/cancel", told) + settle_questions(memo)


def acp_dialect(profile: Profile = GENERIC) -> Dialect:
    """The dialect of an agent that the profile describes."""
    return Dialect(
        name=profile.name,
        used=used,
        launch=partial(launch, profile),
        greet=partial(_greet, profile),
        read=partial(read, profile),
        write=partial(_write, profile),
        takes=takes,
        stop=profile.stop,
        oldest=profile.oldest,
        newest_known=profile.newest_known,
        capabilities=dict.fromkeys(sorted({*profile.can, "host_tools"}), (0, 0, 0)),
        relayed=frozenset({"session"}),
        adds=profile.adds,
    )
