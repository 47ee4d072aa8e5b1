"""The commands `setup` and `health`; see `app`."""

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
        Register with this client only, also when it is not installed. Can be repeated. Default: all installed clients.
    name
        The name of the server.
    fleet
        A fleet file whose agents are served as well.
    agents
        Kinds of agents to serve, separated by commas, as for serve.
    root
        A folder that agents may work in, with everything below it. Can be repeated. Default: the folder of the client.
    permission
        Policy for tool permission requests.
    env
        NAME passes a variable of the client to the agents, NAME=VALUE sets it. Can be repeated.
    remove
        Remove the server from the configuration.
    force
        Replace or remove a server of that name that is not proctor.
    dry_run
        Show what would change without changing it.
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
    """Check which command lines are installed and work; exits with 1 when one does not.

    Parameters
    ----------
    adapter
        The command lines to check. Default: all.
    output
        The output format.
    """
    from proctor.cli.commands.health import health_command

    return health_command(adapter, json=output == "json")
