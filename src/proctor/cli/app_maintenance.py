"""The commands about what is around agents: the clients that know of us, the command lines that are here."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

_Flag = Parameter(negative="", show_default=False)


def setup(
    *,
    client: Annotated[
        tuple[Literal["claude", "codex", "opencode", "gemini"], ...],
        Parameter(negative="", show_default=False),
    ] = (),
    name: str = "proctor",
    fleet: Annotated[str | None, Parameter(negative="")] = None,
    agents: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    root: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    permission: Literal["deny", "allow"] | None = None,
    env: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    remove: Annotated[bool, _Flag] = False,
    force: Annotated[bool, _Flag] = False,
    dry_run: Annotated[bool, _Flag] = False,
) -> int:
    """Register `proctor serve` as an MCP server with Claude Code, Codex, OpenCode and Gemini CLI, in each one's own file.

    Parameters
    ----------
    client
        Only this one; also when it is not installed. Can be repeated. Default: all that are here.
    name
        The name of the server.
    fleet
        A fleet file whose agents are served too.
    agents
        Kinds of agents that are served, as for serve, between commas.
    root
        A folder that callers may have agents work in, and all below it. Can be repeated. Default: where the client is.
    permission
        What tools may do that ask.
    env
        NAME to pass a variable of the client on to the agents, NAME=VALUE to set it. Can be repeated.
    remove
        Take the server out again instead.
    force
        Also when a server of that name is there that is not proctor.
    dry_run
        Say what would change, and change nothing.
    """
    from proctor.cli.commands.setup import SetupOptions, setup_command

    return setup_command(
        SetupOptions(
            clients=client,
            name=name,
            fleet=fleet,
            agents=tuple(kind for kinds in agents for kind in kinds.split(",") if kind),
            roots=root,
            permission=permission,
            env=env,
            remove=remove,
            force=force,
            dry_run=dry_run,
        )
    )


def health(
    *adapter: Literal["claude", "codex", "opencode", "gemini"],
    output: Annotated[Literal["table", "json"], Parameter(name=("--output", "-o"))] = "table",
) -> int:
    """Say of each command line whether it is here and works; ends with 1 when one is not.

    Parameters
    ----------
    adapter
        The command lines that matter. Default: all.
    output
        json for programs.
    """
    from proctor.cli.commands.health import health_command

    return health_command(adapter, json=output == "json")
