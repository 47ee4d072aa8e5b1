"""The dialect of the Agent Client Protocol: launch, requests and stop. `frames` reads its output.

One process holds one session. Differences between agents are data in `Profile`. An interrupt answers every open question as
cancelled, as the protocol requires. An agent exits when its stdin is closed: the protocol has no request for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from proctor.protocols import jsonrpc
from proctor.protocols.acp import handshake
from proctor.protocols.acp.frames import read
from proctor.protocols.acp.profile import GENERIC, Profile
from proctor.protocols.acp.state import state_of
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


def launch(profile: Profile, options: Launch) -> Command:
    """The command line. A program that comes with arguments of its own is a whole command already. Raises NotUtf8."""
    options.require_utf8()
    arguments = profile.arguments if len(options.executable) == 1 else ()
    flags = [
        part
        for field, flag in profile.flags.items()
        if (value := getattr(options, field)) is not None
        for part in (flag, value)
    ]
    unserved = (
        ("mcp",) if options.mcp and profile.servers == "launch" else ()
    )  # for a launch of its own to honour
    argv = (*options.executable, *arguments, *flags, *options.extra)
    return Command(argv=argv, ignored=(*ignored(options), *unserved))


def ignored(options: Launch, honoured: frozenset[str] = HONOURED) -> tuple[str, ...]:
    """The fields that differ from what a launch has by default, and that are not honoured."""
    plain = Launch(executable=(), persist=options.persist or None)  # sessions are kept as it is
    fields = (field.name for field in attrs.fields(Launch) if field.name not in honoured)
    names = [name for name in fields if getattr(options, name) != getattr(plain, name)]
    if options.fork and options.resume is None:
        names.append("fork")
    return tuple(names)


def _greet(profile: Profile, memo: Memo) -> bytes:
    state_of(memo, profile)
    return handshake.greet(memo)


def _write(profile: Profile, memo: Memo, request: AnyRequest) -> bytes:
    state_of(memo, profile)
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
            raise Misuse(f"the Agent Client Protocol cannot send a {kind!r} request", request=kind)


def _interrupt(memo: Memo) -> bytes:
    # Without a session there is no turn to cancel.
    if memo.session_id is None:
        return b""
    params: dict[str, Any] = {"sessionId": memo.session_id}
    return jsonrpc.notify("session/cancel", params) + settle_questions(memo)


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
        newest_tested=profile.newest_tested,
        capabilities=dict.fromkeys(sorted({*profile.can, "host_tools"}), (0, 0, 0)),
        relayed=frozenset({"session"}),
        adds=profile.adds,
    )
