"""The commands `web` and `serve`; see `app`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from proctor.cli.exit_status import USAGE
from proctor.cli.loading import loading
from proctor.cli.usage_errors import complain, missing_of

if TYPE_CHECKING:
    from proctor.actors.errors import OptionFault

_Flag = Parameter(negative="", show_default=False)


def web(
    fleet: str,
    /,
    *,
    listen: str | None = None,
    token_env: Annotated[str | None, Parameter(negative="")] = None,
    no_token: Annotated[bool, _Flag] = False,
    origin: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    grace: str = "10s",
    metrics: Annotated[bool, _Flag] = False,
    sessions: Annotated[str | None, Parameter(negative="")] = None,
    session_ttl: Annotated[str | None, Parameter(negative="")] = None,
    limit: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    strict: Annotated[bool, _Flag] = False,
) -> int:
    """Run a fleet of agents and serve it over HTTP until it is interrupted.

    Parameters
    ----------
    fleet
        The fleet file (TOML).
    listen
        PORT, HOST:PORT or unix:PATH. Default: a Unix socket in the user's runtime folder, named after the fleet.
    token_env
        The environment variable that holds the token, or @ and the path of a file with the token. Default: a new token
        over TCP, shown once on stderr; none for a Unix socket.
    no_token
        Require no token on a loopback address. Every process of this machine can then connect, an agent's tools included.
    origin
        A web origin whose pages may send requests, such as https://example.org. Can be repeated.
    grace
        Grace period for running turns at shutdown.
    metrics
        Serve /metrics.
    sessions
        A folder that keeps sessions when the server ends. Default: sessions are removed with the server.
    session_ttl
        How long an idle session is kept, such as 7d; none for no limit. Default: 30d with --sessions, else 1h.
    limit
        How many session turns may run at a time for each kind of agent, or KIND=N for one kind. Can be repeated.
        Default: chosen by the memory of the machine, at most 10.
    strict
        Stop when an agent cannot start or is restarted too often. Default: serve the others.
    """
    if missing := missing_of("http"):
        complain(missing)
        return USAGE
    with loading():
        from proctor.actors.durations import duration
        from proctor.cli.commands.web import WebOptions, web_command

    words = _Words(" (see proctor web --help)")
    seconds = words.seconds("--grace", grace, duration)
    ttl = None if session_ttl is None else words.seconds("--session-ttl", session_ttl)
    most, by_kind = words.limits(limit)
    return web_command(
        WebOptions(
            fleet=fleet,
            listen=listen,
            token_env=token_env,
            no_token=no_token,
            origins=origin,
            grace=seconds,
            metrics=metrics,
            sessions=sessions,
            session_ttl=ttl,
            limit=most,
            limits=by_kind,
            strict=strict,
            faults=tuple(words.faults),
        )
    )


def serve(
    *,
    http: str | None = None,
    fleet: str | None = None,
    agents: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    root: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    permission: Literal["deny", "allow"] = "deny",
    timeout: str = "300",
    env: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    record: Annotated[str | None, Parameter(negative="")] = None,
    no_record: Annotated[bool, _Flag] = False,
    sessions: Annotated[str | None, Parameter(negative="")] = None,
    session_ttl: Annotated[str | None, Parameter(negative="")] = None,
    limit: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    schema: Annotated[str | None, Parameter(negative="")] = None,
    submit_to: Annotated[str | None, Parameter(negative="")] = None,
    probes: Annotated[str | None, Parameter(negative="")] = None,
    client_ttl: str = "30m",
    token_env: str | None = None,
    no_token: Annotated[bool, _Flag] = False,
    metrics: Annotated[bool, _Flag] = False,
) -> int:
    """Serve agents as MCP tools until stdin closes or a signal arrives.

    proctor without a command does the same when its stdin is not a terminal.

    Parameters
    ----------
    http
        Serve over HTTP instead of stdio, at PORT, HOST:PORT or unix:PATH; the path is /mcp.
    fleet
        A fleet file (TOML). Its agents are started, and each becomes a tool.
    agents
        Kinds of agents, as for run, separated by commas. Default: claude,codex,opencode,gemini; none with --fleet.
    root
        A folder that agents may work in, with everything below it. Can be repeated. Default: the current folder.
    permission
        Policy for tool permission requests.
    timeout
        Time limit for a call that sets none, in seconds or as a duration such as 5m.
    env
        NAME passes a variable to the agents, NAME=VALUE sets it. Can be repeated.
    record
        The folder for recordings. Default: the user's state folder.
    no_record
        Keep no recording.
    sessions
        A folder that keeps sessions when the server ends. Default: sessions are removed with the server.
    session_ttl
        How long an idle session is kept, such as 7d; none for no limit. Default: 30d with --sessions, else 1h.
    limit
        How many agents of each kind may run at a time, or KIND=N for one kind. Can be repeated. Default: chosen by the
        memory of the machine, at most 10.
    schema
        A file with a JSON schema. The tools submit, validate and example take answers that match it. Agents are served
        beside them only where --agents or --fleet names them.
    submit_to
        The file to append accepted answers to, one line of JSON each.
    probes
        With stdio: serve /healthz, /readyz and, with --metrics, /metrics at PORT, HOST:PORT or unix:PATH.
    client_ttl
        How long the session of an idle HTTP client is kept, such as 30m; none for no limit.
    token_env
        The environment variable that holds the token of HTTP clients, or @ and the path of a file with the token.
        Required for addresses that other machines can reach.
    metrics
        Serve /metrics, beside /mcp or the probes.
    """
    if missing := missing_of("mcp", *(("http",) if http or probes else ())):
        complain(missing)
        return USAGE
    with loading():
        from proctor.cli.commands.serve import ServeOptions, serve_command

    words = _Words()
    seconds = words.seconds("--timeout", timeout)
    client_seconds = words.seconds("--client-ttl", client_ttl)
    ttl = None if session_ttl is None else words.seconds("--session-ttl", session_ttl)
    most, by_kind = words.limits(limit)
    return serve_command(
        ServeOptions(
            http=http,
            fleet=fleet,
            agents=tuple(name for names in agents for name in names.split(",") if name),
            roots=root,
            permission=permission,
            timeout=seconds,
            env=env,
            record=record,
            recorded=not no_record,
            sessions=sessions,
            session_ttl=ttl,
            limit=most,
            limits=by_kind,
            schema=schema,
            submit_to=submit_to,
            probes=probes,
            client_ttl=client_seconds,
            token_env=token_env,
            no_token=no_token,
            metrics=metrics,
            faults=tuple(words.faults),
        )
    )


class _Words:
    """Words of a command that are to be numbers. `faults` gets a line for each that is none, with `hint` behind it; a value
    that means nothing stands in its place, so that what is wrong with the other words is found as well."""

    def __init__(self, hint: str = "") -> None:
        self.faults: list[OptionFault] = []
        self._hint = hint

    def seconds(self, option: str, text: str, read: Callable[[str], float] | None = None) -> float:
        """As `read` takes it; without one infinite for none."""
        from proctor.actors.durations import limit

        try:
            return (read or limit)(text)
        except ValueError as error:
            self._refuse(f"{option}: {error}")
            return math.inf

    def limits(self, words: Sequence[str]) -> tuple[int | None, dict[str, int]]:
        """The limit of every kind, None for the machine's, and those of single kinds."""
        most: int | None = None
        by_kind: dict[str, int] = {}
        for word in words:
            kind, equals, number = word.rpartition("=")
            if not (number.isascii() and number.isdigit()) or (equals and not kind):
                self._refuse(f"--limit: expected a number, or KIND=NUMBER, got {word!r}")
            elif equals:
                by_kind[kind] = int(number)
            else:
                most = int(number)
        return most, by_kind

    def _refuse(self, text: str) -> None:
        from proctor.actors.errors import OptionFault

        self.faults.append(OptionFault("", f"{text}{self._hint}"))
