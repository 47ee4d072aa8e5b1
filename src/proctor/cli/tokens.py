"""The token that clients of a server must send: from the environment, from a file, or made for this run.

Over TCP every process of this machine can connect, the tools of an agent included, and an agent could then approve its
own tool calls. So a TCP address needs a token, also on loopback. A new token is shown on stderr at the start and kept in memory;
`protect_memory` closes the memory and the environment of this process to other processes of the user.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
import sys
from pathlib import Path

import attrs

from proctor.actors.errors import BadOption
from proctor.actors.web_server.listening import Endpoint
from proctor.cli.ui.output import Output

_PR_SET_DUMPABLE = 4


@attrs.frozen
class Token:
    """The token of a server, None for no token. `made`: it is new, so the user must see it."""

    value: str | None = attrs.field(default=None, repr=False)
    made: bool = False

    @property
    def fragment(self) -> str:
        """What a link to the web page ends with; a fragment is never sent, so it is in no log of a server or proxy."""
        return f"#token={self.value}" if self.made else ""


async def announce(screen: Output, line: str, token: Token) -> None:
    """Show the address of a server, and a token that was made for it."""
    if token.value is not None:
        # only with a token: afterwards the user cannot attach a debugger to this process any more
        protect_memory()
    await screen.say(line)
    if token.made:
        await screen.say(f"clients send the header: Authorization: Bearer {token.value}")


def token_for(where: Endpoint, variable: str | None, *, no_token: bool = False) -> Token:
    """The token of a server at `where`: the one that `variable` names, else a new one for a TCP address.

    A Unix socket needs none: only processes of its owner can connect, and none that an agent has started. Raises
    `BadOption`, also for `no_token` with an address that other machines can reach.
    """
    if variable is not None:
        if no_token:
            raise BadOption("--token-env and --no-token exclude each other")
        return Token(token_of(variable))
    # only processes of the owner can connect, and peers.py refuses those that an agent has started
    if where.path is not None:
        return Token()
    if not no_token:
        return Token(secrets.token_urlsafe(24), made=True)
    if not where.private:
        raise BadOption(f"--no-token: {where} can be reached from other machines, so it needs a token")
    return Token()


def token_of(variable: str | None) -> str | None:
    """Read the token from this environment variable, or from the file that it names after `@`. Raises `BadOption`."""
    if variable is None:
        return None
    value = os.environ.get(variable, "")
    if not value:
        raise BadOption(f"--token-env {variable}: this variable is not set, or empty")
    if not value.startswith("@"):
        return value
    path = Path(os.path.expanduser(value[1:]))
    try:
        with path.open(encoding="utf-8") as file:
            # of the opened file, not of the path, which could be replaced between the two
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--token-env {variable}: {value[1:]!r} cannot be read: {error}") from None
    # a pipe such as <(pass show token) has wide modes and no other readers
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadOption(
            f"--token-env {variable}: {value[1:]!r} can be read by others (mode {stat.S_IMODE(mode):04o}): chmod 600 it"
        )
    return text


def protect_memory() -> None:
    """Close the memory and the environment of this process, where the token is, to other processes of the user. Linux."""
    if sys.platform == "linux":
        # not dumpable: /proc/PID/environ and mem then belong to root, and ptrace by the same user is refused
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
