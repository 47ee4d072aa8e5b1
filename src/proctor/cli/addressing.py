"""The running fleets and agents that a verb names."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from proctor.actors.client.sockets import Host, running_hosts
from proctor.cli.control_client import Client, ControlError, agent_path

Record = Mapping[str, Any]


class Place(NamedTuple):
    """An agent of a running fleet: the client of its host, and its record."""

    client: Client
    record: Record

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.record["name"])

    @property
    def full_name(self) -> str:
        """Its name with that of its fleet."""
        return f"{self.client.host.fleet}/{self.name}"

    def call(self, method: str, rest: str, body: Record | None = None) -> Any:
        """Send a request about it. Raises `ControlError`."""
        return self.client.call(method, self.at(rest), body)

    def at(self, rest: str) -> str:
        """The path of a request about it."""
        return agent_path(self.name, rest)


def fleet_of(options: Namespace) -> Client:
    """The running fleet that is named; without a name the only one. Raises `ControlError`."""
    hosts = _hosts()
    named = [host for host in hosts if options.fleet in (None, host.fleet)]
    if not named:
        raise ControlError(f"no fleet {options.fleet!r} runs under this user; these do: {_names(hosts)}")
    if len(named) > 1:
        raise ControlError(f"{len(named)} fleets run: {_names(named)}; name one")
    return Client(named[0], options.timeout)


def _hosts() -> list[Host]:
    if not (hosts := running_hosts()):
        raise ControlError("no fleet runs under this user; start one with proctor up FLEET.toml")
    return hosts


def _names(hosts: Sequence[Host]) -> str:
    return ", ".join(host.fleet for host in hosts)


def agents_of(options: Namespace) -> list[Place]:
    """The agents that are named, in one fleet or in all. Raises `ControlError`."""
    fleet, _, name = options.agent.rpartition("/")
    hosts = [host for host in _hosts() if fleet in ("", host.fleet)]
    clients = [Client(host, options.timeout) for host in hosts]
    places = [Place(client, record) for client in clients for record in client.get("/fleet")["agents"]]
    if set(name) & set("*?["):
        found = [place for place in places if fnmatchcase(place.name, name)]
    else:
        exact = [place for place in places if place.name == name]
        found = exact or [place for place in places if place.name.startswith(name)]
        if len(found) > 1:
            raise ControlError(f"{options.agent!r} is the name of {_listed(found)}; name one")
    if not found:
        where = f"fleet {fleet!r}" if fleet else "a fleet that runs"
        raise ControlError(
            f"no agent of {where} has the name {options.agent!r}; these are there: {_listed(places)}"
        )
    return found


def _listed(places: Sequence[Place]) -> str:
    return ", ".join(place.full_name for place in places) or "none"


def agent_of(options: Namespace) -> Place:
    """The one agent that is named. Raises `ControlError`."""
    first, *others = agents_of(options)
    if others:
        raise ControlError(f"{options.agent!r} is the name of {_listed([first, *others])}; name one")
    return first
