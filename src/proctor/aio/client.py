"""proctor for asyncio programs: fleets in other processes.

Written by `python -m tests.faces` from the names of `proctor`; see docs/reference/faces.md.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from proctor.actors.agent.states import Status
from proctor.actors.client.fleet import Change, Record
from proctor.actors.client.fleet import RemoteAgent as _RemoteAgent
from proctor.actors.client.fleet import RemoteApproval as _RemoteApproval
from proctor.actors.client.fleet import RemoteFleet as _RemoteFleet
from proctor.actors.client.fleet import connect as _connect
from proctor.actors.client.sockets import Host
from proctor.actors.outcomes import Answer
from proctor.actors.tools.menus import MenuQuestion
from proctor.aio.agents import Receipt
from proctor.bridge.adapters import each
from proctor.bridge.asyncio_face import Block, Stream, call
from proctor.bridge.proxies import Proxy
from proctor.protocols.vocabulary import AnyEvent


def connect(fleet: str | None = None, *, timeout: float = 10.0) -> Block[RemoteFleet]:
    """The fleet of this name that runs under this user; without a name the only one."""
    return Block(None, RemoteFleet.around, _connect, fleet, timeout=timeout)


class RemoteFleet(Proxy[_RemoteFleet]):
    """A running fleet."""

    @property
    def host(self) -> Host:
        """Its host: the name of the fleet, the path of the socket, the process."""
        value: Host = self._target.host
        return value

    def agent(self, name: str) -> RemoteAgent:
        """The agent of this name."""
        return RemoteAgent.around(self._target.agent(name), self._thread)

    async def agents(self) -> dict[str, Status]:
        """The status of each agent, by name."""
        result: dict[str, Status] = await call(self._thread, self._target.agents)
        return result

    async def status(self) -> Record:
        """One snapshot of the whole fleet, as `GET /fleet` has it."""
        result: Record = await call(self._thread, self._target.status)
        return result

    def changes(self, since: int | None = None) -> Block[Stream[Change]]:
        """Follow what changes after the `sequence` of a snapshot, by default from now on; ends with the host."""
        return Block(self._thread, Stream[Change].around, self._target.changes, since)

    async def approvals(self) -> tuple[RemoteApproval, ...]:
        """The open approvals of all agents."""
        return partial(each, RemoteApproval)(await call(self._thread, self._target.approvals), self._thread)

    async def reload(self, *, dry_run: bool = False, restart: bool = False) -> Record:
        """Have the host read its fleet file again, as `POST /reload` does."""
        result: Record = await call(self._thread, self._target.reload, dry_run=dry_run, restart=restart)
        return result

    async def stop(self, *, grace: float = 0.0) -> None:
        """Stop the host in order, when running turns have had `grace` seconds."""
        await call(self._thread, self._target.stop, grace=grace)


class RemoteAgent(Proxy[_RemoteAgent]):
    """An agent of a running fleet: the methods of `Agent`, and those of its supervisor about it."""

    @property
    def name(self) -> str:
        """See `RemoteAgent`."""
        value: str = self._target.name
        return value

    async def ask(
        self, prompt: str, *, timeout: float | None = None, schema: object = None, key: str | None = None
    ) -> Answer[Any]:
        """Send `prompt` and wait for the end of its turn, as `Agent.ask` does."""
        result: Answer[Any] = await call(
            self._thread, self._target.ask, prompt, timeout=timeout, schema=schema, key=key
        )
        return result

    async def queue(self, text: str, *, key: str | None = None) -> Receipt:
        """Send `text` in a turn of its own, behind what waits already."""
        return Receipt.around(await call(self._thread, self._target.queue, text, key=key), self._thread)

    async def steer(self, text: str, *, timeout: float | None = None) -> Receipt:
        """Send `text` into the running turn, and wait for its fate."""
        return Receipt.around(
            await call(self._thread, self._target.steer, text, timeout=timeout), self._thread
        )

    async def interrupt(self) -> Receipt:
        """End the running turn; the session lives on."""
        return Receipt.around(await call(self._thread, self._target.interrupt), self._thread)

    async def status(self) -> Status:
        """Its status."""
        result: Status = await call(self._thread, self._target.status)
        return result

    async def stop(self) -> Status:
        """Stop it; it stays down until it is started."""
        result: Status = await call(self._thread, self._target.stop)
        return result

    async def start(self) -> Status:
        """Start it."""
        result: Status = await call(self._thread, self._target.start)
        return result

    async def restart(self) -> Status:
        """Stop it and start it again, in its session."""
        result: Status = await call(self._thread, self._target.restart)
        return result

    async def kill(self) -> Status:
        """Kill it with its processes; its supervisor does what it does after a crash."""
        result: Status = await call(self._thread, self._target.kill)
        return result

    async def reset(self) -> Status:
        """Forget its restarts, and start it unless it works."""
        result: Status = await call(self._thread, self._target.reset)
        return result

    async def park(self, reason: str = "", *, until: float | None = None) -> Status:
        """Hold it back, until that time (Unix seconds) or until it is let go."""
        result: Status = await call(self._thread, self._target.park, reason, until=until)
        return result

    async def unpark(self) -> Status:
        """Let it go."""
        result: Status = await call(self._thread, self._target.unpark)
        return result

    def events(self, since: int | None = None) -> Block[Stream[AnyEvent]]:
        """Follow its log, from position `since` (default: from now on), through its restarts."""
        return Block(self._thread, Stream[AnyEvent].around, self._target.events, since)

    def approvals(self) -> Block[Stream[RemoteApproval]]:
        """The tools that wait for a decision, and those that will."""
        return Block(self._thread, RemoteApprovals.around, self._target.approvals)


class RemoteApproval(Proxy[_RemoteApproval]):
    """A tool that wants to run, until somebody decides; denied after `seconds_left` from when it was read."""

    @property
    def agent(self) -> str:
        """See `RemoteApproval`."""
        value: str = self._target.agent
        return value

    @property
    def id(self) -> str:
        """See `RemoteApproval`."""
        value: str = self._target.id
        return value

    @property
    def tool(self) -> str:
        """See `RemoteApproval`."""
        value: str = self._target.tool
        return value

    @property
    def input(self) -> dict[str, Any]:
        """See `RemoteApproval`."""
        value: dict[str, Any] = self._target.input
        return value

    @property
    def description(self) -> str | None:
        """See `RemoteApproval`."""
        value: str | None = self._target.description
        return value

    @property
    def seconds_left(self) -> float:
        """See `RemoteApproval`."""
        value: float = self._target.seconds_left
        return value

    @property
    def asked(self) -> float:
        """See `RemoteApproval`."""
        value: float = self._target.asked
        return value

    @property
    def choices(self) -> tuple[str, ...]:
        """See `RemoteApproval`."""
        value: tuple[str, ...] = self._target.choices
        return value

    @property
    def diff(self) -> str | None:
        """See `RemoteApproval`."""
        value: str | None = self._target.diff
        return value

    @property
    def questions(self) -> tuple[MenuQuestion, ...]:
        """See `RemoteApproval`."""
        value: tuple[MenuQuestion, ...] = self._target.questions
        return value

    async def allow(self, input: dict[str, Any] | None = None, *, always: bool = False) -> str:
        """Let the tool run, with another `input` if one is given; with `always` for the rest of the session."""
        result: str = await call(self._thread, self._target.allow, input, always=always)
        return result

    async def answer(self, *answers: str) -> str:
        """Answer its `questions`, each with one of its options or a text of your own."""
        result: str = await call(self._thread, self._target.answer, *answers)
        return result

    async def extend(self, seconds: float) -> RemoteApproval:
        """Give it `seconds` from now in place of its deadline."""
        return RemoteApproval.around(await call(self._thread, self._target.extend, seconds), self._thread)

    async def deny(self, message: str = "") -> str:
        """Keep the tool from running; the model gets `message`."""
        result: str = await call(self._thread, self._target.deny, message)
        return result


class RemoteApprovals(Stream[RemoteApproval]):
    """The approvals of an agent of a fleet, as they come."""

    def _item(self, item: Any) -> RemoteApproval:
        return RemoteApproval.around(item, self._thread)
