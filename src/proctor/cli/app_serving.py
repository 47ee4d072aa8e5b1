"""The commands that serve agents to others; see `commands`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from proctor.cli.codes import USAGE
from proctor.cli.loading import loading
from proctor.cli.usage_errors import complain, missing_of

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
    """Run a fleet of agents and serve it over HTTP, until it is interrupted.

    Parameters
    ----------
    fleet
        The fleet file (TOML).
    listen
        PORT, HOST:PORT or unix:PATH. Default: a Unix socket in the user's runtime folder, named after the fleet.
    token_env
        The environment variable with the token, or with @ and the path of its file. Default: over TCP a new token, shown
        once on stderr; none for a Unix socket.
    no_token
        No token on a loopback address: every process of this machine can connect, an agent's tools included.
    origin
        A page that may ask, such as https://example.org. Can be repeated.
    grace
        How long turns that run have when it is to stop.
    metrics
        Serve /metrics.
    sessions
        A folder that keeps the sessions clients name, from one server to the next. Default: they go with the server.
    session_ttl
        How long an unused session is kept, such as 7d; none for no limit. Default: 30d with --sessions, else 1h.
    limit
        How many turns in sessions work at a time, for each kind, or KIND=N for one. Can be repeated. Default: what the
        machine has room for, at most 10.
    strict
        End when an agent cannot start or is restarted too often, instead of serving the others.
    """
    from proctor.actors.durations import duration

    if missing := missing_of("http"):
        complain(missing)
        return USAGE
    with loading():
        from proctor.cli.commands.web import WebOptions, web_command

    try:
        seconds = duration(grace)
    except ValueError as error:
        complain(f"--grace: {error} (see proctor web --help)")
        return USAGE
    try:
        ttl = None if session_ttl is None else _seconds("--session-ttl", session_ttl)
        most, by_kind = _limits(limit)
    except ValueError as error:
        complain(f"{error} (see proctor web --help)")
        return USAGE
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
    """Offer agents as tools of the Model Context Protocol, until stdin ends or a signal comes.

    Without any word proctor does the same when its stdin is no terminal.

    Parameters
    ----------
    http
        Serve HTTP instead of stdio, at PORT, HOST:PORT or unix:PATH; the protocol is at /mcp.
    fleet
        A fleet file (TOML): its agents are started, and each is a tool.
    agents
        Kinds of agents, as for run, between commas. Default: claude,codex,opencode,gemini; none beside a fleet.
    root
        A folder that callers may have agents work in, and all below it. Can be repeated. Default: this one.
    permission
        What tools may do that ask.
    timeout
        Seconds that a turn may take unless its caller says otherwise, or a duration such as 5m.
    env
        NAME to pass a variable on to the agents, NAME=VALUE to set it. Can be repeated.
    record
        The folder for recordings. Default: the user's state folder.
    no_record
        Keep no recording.
    sessions
        A folder that keeps the sessions callers name, from one server to the next. Default: they go with the server.
    session_ttl
        How long an unused session is kept, such as 7d; none for no limit. Default: 30d with --sessions, else 1h.
    limit
        How many agents of one kind work at a time, or KIND=N for one kind. Can be repeated. Default: what the machine
        has room for, at most 10.
    schema
        A file with a JSON schema: the tools submit, validate and example take answers that fit it. No agents beside
        them but those that are named.
    submit_to
        The file that accepted answers are appended to, a line of JSON each.
    probes
        Serve /healthz, /readyz and, with --metrics, /metrics beside stdio, at PORT, HOST:PORT or unix:PATH.
    client_ttl
        How long an HTTP client that asks nothing is remembered, such as 30m; none for no limit.
    token_env
        The environment variable with the token that HTTP clients must send, or with @ and the path of its file.
        Needed beyond this machine.
    metrics
        Serve /metrics, beside /mcp or the probes.
    """
    if missing := missing_of("mcp", *(("http",) if http or probes else ())):
        complain(missing)
        return USAGE
    try:
        seconds = _seconds("--timeout", timeout)
        client_seconds = _seconds("--client-ttl", client_ttl)
        ttl = None if session_ttl is None else _seconds("--session-ttl", session_ttl)
        most, by_kind = _limits(limit)
    except ValueError as error:
        complain(str(error))
        return USAGE
    with loading():
        from proctor.cli.commands.serve import ServeOptions, serve_command

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
        )
    )


def _seconds(option: str, text: str) -> float:
    """Seconds, infinite for none. Raises ValueError with the option's name."""
    from proctor.actors.durations import limit

    try:
        return limit(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def _limits(words: Sequence[str]) -> tuple[int | None, dict[str, int]]:
    """The limit of every kind, None for the machine's, and those of single kinds. Raises ValueError."""
    most: int | None = None
    by_kind: dict[str, int] = {}
    for word in words:
        kind, equals, number = word.rpartition("=")
        if not (number.isascii() and number.isdigit()) or (equals and not kind):
            raise ValueError(f"--limit: expected a number, or KIND=NUMBER, got {word!r}")
        if equals:
            by_kind[kind] = int(number)
        else:
            most = int(number)
    return most, by_kind
