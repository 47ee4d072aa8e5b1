"""`proctor setup`: registers this proctor as an MCP server in the configuration files of MCP clients.

Shows a line for each client, and below it the lines that were added or removed, but never the rest of the file. A client
that fails does not stop the others; the exit status is then 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from proctor.actors.fleet.fleet import load_fleet
from proctor.actors.plan.environment import parse_env
from proctor.actors.serving.allowed_dirs import AllowedDirs
from proctor.actors.setup.registration import (
    CLIENTS,
    Action,
    Client,
    Goal,
    Registration,
    SetupRequest,
    is_present,
    register,
)
from proctor.cli.agent_kinds import plan_of
from proctor.cli.daemon import run_report
from proctor.cli.exit_status import FAILED, OK
from proctor.cli.parameters import SetupOptions, listed
from proctor.cli.ui.output import Output
from proctor.cli.ui.text import printable

RESULTS: Mapping[tuple[Action, bool], str] = {
    ("add", False): "registered",
    ("add", True): "would register",
    ("replace", False): "updated",
    ("replace", True): "would update",
    ("remove", False): "removed",
    ("remove", True): "would remove",
}
"""Action x dry run → its text."""


def setup_command(options: SetupOptions) -> int:
    """Register or remove with each client; the exit status is 1 when one failed."""
    return run_report(lambda out: _set_up(options, out))


def _request(options: SetupOptions) -> SetupRequest:
    argv = (*own_command(sys.argv[0]), "serve", *_served(options))
    goal: Goal = "remove" if options.remove else "register"
    return SetupRequest(argv=argv, goal=goal, force=options.force, name=options.name, dry_run=options.dry_run)


def _served(options: SetupOptions) -> Iterator[str]:
    """The arguments of `proctor serve` to register, checked. Raises `BadOption`, `FleetFaults` or `ScriptError`."""
    if options.fleet is not None:
        yield from ("--fleet", str(_fleet(options.fleet)))
    for agent in listed(options.agents):
        yield from ("--agents", _agent(agent))
    for folder in AllowedDirs(tuple(options.root)).folders if options.root else ():
        yield from ("--root", str(folder))
    if options.permission is not None:
        yield from ("--permission", options.permission)
    named = {
        item.partition("=")[0]: "" for item in options.env
    }  # a variable that is not set here may be set in the client
    parse_env(options.env, named)
    for item in options.env:
        yield from ("--env", item)


def _agent(agent: str) -> str:
    """The kind of agent with an absolute path, so that it works from any folder."""
    kind, colon, rest = agent.partition(":")
    if kind == "scripted" and colon:
        # the client starts the server in a folder of its own
        agent = f"{kind}:{Path(rest).absolute()}"
    plan_of(agent, {})
    return agent


def _fleet(name: str) -> Path:
    path = Path(name).absolute()
    load_fleet(path)
    return path


def own_command(started: str) -> tuple[str, ...]:
    """The command that starts this proctor: its script, where that was `started`, else its interpreter.

    A link is not resolved, because installers point it to the next version.
    """
    script = Path(started).absolute()
    if script.name == "proctor" and script.is_file() and os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "proctor")


async def _set_up(options: SetupOptions, out: Output) -> int:
    request = _request(options)
    names = dict.fromkeys(options.client) or CLIENTS
    chosen = [CLIENTS[name] for name in names]
    done = [await _one(client, options, request, out) for client in chosen]
    if all(each is None for each in done):
        return FAILED
    return FAILED if any(each is not None and each.error for each in done) else OK


async def _one(
    client: Client, options: SetupOptions, request: SetupRequest, out: Output
) -> Registration | None:
    """Register with one client; None for a client that is not installed and was not named."""
    if not options.client and not options.remove and not is_present(client, os.environ):
        text = f"not installed; --client {client.name} registers it anyway"
        await _write(out, [f"{client.name:9} {text}"])
        return None
    made = await register(client, request, os.environ)
    await _write(out, format_registration(made, options))
    return made


def format_registration(made: Registration, options: SetupOptions) -> Iterable[str]:
    """Format the result for one client as lines."""
    where = "" if made.path is None else f"{made.path}"
    if made.error is not None:
        yield f"{made.client:9} FAILED {where}: {made.error}"
        yield from (f"{'':9}   add by hand: {line}" for line in made.by_hand)
        return
    kept = "was not registered" if options.remove else "is already registered"
    yield f"{made.client:9} {RESULTS.get((made.action, options.dry_run), kept)} in {where}"
    yield from (f"{'':9}   {line}" for line in made.lines)


async def _write(out: Output, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    await out.write(printable(text).encode("utf-8", "replace"))
