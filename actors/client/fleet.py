"""A client of a running fleet, in another process of the same user: `async with connect("review") as fleet`.

It speaks HTTP over the control socket of the host. Nothing hangs: a host that does not answer, one that ends, and one whose answer cannot be read
are an error each. What an agent of the host raises is raised here, by the same class.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import attrs
import msgspec
import trio

from proctor.actors.agent.receipts import Receipt
from proctor.actors.agent.states import Status
from proctor.actors.client.connection import Connection, NoSuchFleet
from proctor.actors.client.problems import delivery_of_record
from proctor.actors.client.sockets import TIMEOUT, Host, running_hosts
from proctor.actors.outcomes import Answer
from proctor.actors.tools.menus import MenuQuestion
from proctor.protocols.vocabulary import AnyEvent, Usage
from proctor.runtime.trio_only import check_in_trio

Record = Mapping[str, Any]


class Change(NamedTuple):
    """A change of a fleet: `kind` is `agent`, `tree`, `fleet`, or `snapshot` (take a new one); `record` as in the HTTP API."""

    kind: str
    record: Record


def connect(
    fleet: str | None = None, *, timeout: float = TIMEOUT
) -> AbstractAsyncContextManager[RemoteFleet]:
    """The fleet of this name that runs under this user; without a name the only one. A host must answer within `timeout` seconds.

    Raises `NoSuchFleet`, and `HostError` when its host does not answer, or is of a version that this one does not understand.
    """
    return _connect(fleet, timeout)


@asynccontextmanager
async def _connect(name: str | None, timeout: float) -> AsyncGenerator[RemoteFleet]:
    check_in_trio("proctor.connect")
    hosts = await trio.to_thread.run_sync(running_hosts)
    named = [host for host in hosts if name in (None, host.fleet)]
    if len(named) != 1:
        raise NoSuchFleet(name, [host.fleet for host in hosts])
    fleet = RemoteFleet(Connection(named[0], timeout))
    await fleet.agents()
    yield fleet


class RemoteFleet:
    """A running fleet. Its methods raise `HostError` when the host ends or does not answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def host(self) -> Host:
        """Its host: the name of the fleet, the path of the socket, the process."""
        return self._connection.host

    def agent(self, name: str) -> RemoteAgent:
        """The agent of this name. Looking up does not check that it is there: a call does."""
        return RemoteAgent(name, self._connection)

    async def agents(self) -> dict[str, Status]:
        """The status of each agent, by name."""
        return self._connection.read(_statuses, await self.status())

    async def status(self) -> Record:
        """One snapshot of the whole fleet, as `GET /fleet` has it."""
        record: Record = await self._connection.call("GET", "/fleet")
        return record

    @asynccontextmanager
    async def changes(self, since: int | None = None) -> AsyncGenerator[AsyncIterator[Change]]:
        """Follow what changes after the `sequence` of a snapshot, by default from now on; ends with the host."""
        path = "/fleet/changes" if since is None else f"/fleet/changes?since={since}"
        async with self._connection.stream(path, Change) as changes:
            yield changes

    async def approvals(self) -> tuple[RemoteApproval, ...]:
        """The open approvals of all agents."""
        found = await self._connection.call("GET", "/approvals")
        return self._connection.read(_approvals, found, self._connection)

    async def reload(self, *, dry_run: bool = False, restart: bool = False) -> Record:
        """Have the host read its fleet file again, as `POST /reload` does."""
        record: Record = await self._connection.call(
            "POST", "/reload", {"dry_run": dry_run, "restart": restart}
        )
        return record

    async def stop(self, *, grace: float = 0.0) -> None:
        """Stop the host in order, when running turns have had `grace` seconds. Returns when it has begun to."""
        await self._connection.call("POST", "/shutdown", {"grace": grace})


@attrs.frozen
class RemoteApproval:
    """A tool that wants to run, until somebody decides; denied after `seconds_left` from when it was read. `asked`, `diff`, `questions` and
    `choices` as in `Approval`. Each method raises `RemoteError` when the approval is settled,
    and `BadOption` as `Approval` does."""

    agent: str
    id: str
    tool: str
    input: dict[str, Any]
    description: str | None
    seconds_left: float
    connection: Connection = attrs.field(repr=False, eq=False)
    asked: float = 0.0
    choices: tuple[str, ...] = ("allow", "deny")
    diff: str | None = None
    questions: tuple[MenuQuestion, ...] = ()

    async def allow(self, input: dict[str, Any] | None = None, *, always: bool = False) -> str:  # noqa: A002  # as `Approval.allow`
        """Let the tool run, with another `input` if one is given; with `always` for the rest of the session. Returns how it was settled."""
        return await self._decide({"decision": "always" if always else "allow", "input": input})

    async def answer(self, *answers: str) -> str:
        """Answer its `questions`, each with one of its options or a text of your own. Returns as `allow` does."""
        return await self._decide({"decision": "allow", "answers": answers})

    async def extend(self, seconds: float) -> RemoteApproval:
        """Give it `seconds` from now in place of its deadline. Returns it as it is then."""
        record = await self.connection.call("POST", f"{self._path}/deadline", {"seconds": seconds})
        return self.connection.read(_approval, record, self.connection)

    async def deny(self, message: str = "") -> str:
        """Keep the tool from running; the model gets `message`. Returns as `allow` does."""
        return await self._decide({"decision": "deny", "message": message})

    @property
    def _path(self) -> str:
        return f"/agents/{quote(self.agent, safe='')}/approvals/{quote(self.id, safe='')}"

    async def _decide(self, body: Record) -> str:
        settled: str = (await self.connection.call("POST", self._path, body))["settled"]
        return settled


class RemoteAgent:
    """An agent of a running fleet: the methods of `Agent`, and those of its supervisor about it."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._connection = connection

    async def ask(
        self, prompt: str, *, timeout: float | None = None, schema: object = None, key: str | None = None
    ) -> Answer[Any]:
        """Send `prompt` and wait for the end of its turn, as `Agent.ask` does. Cancelled, it withdraws the turn, unless it has a `key`: then
        the request goes on, and is asked again with the same key. Raises what `Agent.ask` raises."""
        expected = None
        body: dict[str, Any] = {"prompt": prompt} | ({} if timeout is None else {"timeout": timeout})
        if schema is not None:
            from proctor.actors.structured.schemas import schema_of  # loads what few requests need

            expected = schema_of(schema)
            body["schema"] = dict(expected.json)
        turn = await self._call("POST", "turns", body, key)
        answer = self._connection.read(_answer, turn["answer"])
        if expected is None or not answer.ok:
            return answer
        return attrs.evolve(answer, value=expected.value(answer.structured_output))

    async def queue(self, text: str, *, key: str | None = None) -> Receipt:
        """Send `text` in a turn of its own, behind what waits already. With a `key` the answer can be waited for: `await receipt.answer()`."""
        record = await self._call("POST", "queue", {"prompt": text}, key)
        finish = None if key is None else partial(self.ask, text, key=key)
        return attrs.evolve(self._connection.read(_receipt, record), finish=finish)

    async def steer(self, text: str, *, timeout: float | None = None) -> Receipt:
        """Send `text` into the running turn, and wait for its fate."""
        body = {"text": text} if timeout is None else {"text": text, "timeout": timeout}
        return self._connection.read(_receipt, await self._call("POST", "steer", body))

    async def interrupt(self) -> Receipt:
        """End the running turn; the session lives on."""
        return self._connection.read(_receipt, await self._call("POST", "interrupt"))

    async def status(self) -> Status:
        """Its status."""
        return self._connection.read(_status, await self._call("GET"))

    async def stop(self) -> Status:
        """Stop it; it stays down until it is started."""
        return await self._command("stop")

    async def start(self) -> Status:
        """Start it. Raises `SupervisionError` when it runs, or cannot start."""
        return await self._command("start")

    async def restart(self) -> Status:
        """Stop it and start it again, in its session."""
        return await self._command("restart")

    async def kill(self) -> Status:
        """Kill it with its processes; its supervisor does what it does after a crash."""
        return await self._command("kill")

    async def reset(self) -> Status:
        """Forget its restarts, and start it unless it works."""
        return await self._command("reset")

    async def park(self, reason: str = "", *, until: float | None = None) -> Status:
        """Hold it back, until that time (Unix seconds) or until it is let go."""
        return await self._command("park", {"reason": reason, "until": until})

    async def unpark(self) -> Status:
        """Let it go."""
        return await self._command("unpark")

    @asynccontextmanager
    async def events(self, since: int | None = None) -> AsyncGenerator[AsyncIterator[AnyEvent]]:
        """Follow its log, from position `since` (default: from now on), through its restarts."""
        path = self._path("events") + ("" if since is None else f"?since={since}")
        async with self._connection.stream(path, _event, self.name) as events:
            yield events

    @asynccontextmanager
    async def approvals(self) -> AsyncGenerator[AsyncIterator[RemoteApproval]]:
        """The tools that wait for a decision, and those that will. Raises `BadOption` for an agent whose policy answers."""

        def decode(kind: str, record: Record) -> RemoteApproval:
            return _approval(record, self._connection)

        async with self._connection.stream(self._path("approvals"), decode, self.name) as approvals:
            yield approvals

    async def _command(self, word: str, body: Record | None = None) -> Status:
        return self._connection.read(_status, await self._call("POST", word, body))

    async def _call(
        self, method: str, rest: str = "", body: Record | None = None, key: str | None = None
    ) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self._connection.call(method, self._path(rest), body, headers, agent=self.name)

    def _path(self, rest: str) -> str:
        return f"/agents/{quote(self.name, safe='')}" + (f"/{rest}" if rest else "")


def _statuses(snapshot: Record) -> dict[str, Status]:
    return {record["name"]: _status(record) for record in snapshot["agents"]}


def _status(record: Record) -> Status:
    fields = _fields(Status, record)
    seconds = record.get("seconds")
    if seconds is None and record.get("since") is not None:
        seconds = time.time() - record["since"]
    # on this program's clock, as that of an agent of its own
    fields["since"] = 0.0 if seconds is None else trio.current_time() - seconds
    return Status(**fields)


def _fields(kind: type[Any], record: Record) -> dict[str, Any]:
    """What a record has of the fields of a class."""
    return {name: record[name] for name in attrs.fields_dict(kind) if name in record}


def _receipt(record: Record) -> Receipt:
    return Receipt(**_fields(Receipt, record))


def _approvals(record: Record, connection: Connection) -> tuple[RemoteApproval, ...]:
    return tuple(_approval(one, connection) for one in record["approvals"])


def _approval(record: Record, connection: Connection) -> RemoteApproval:
    fields = _fields(RemoteApproval, record)
    # a host of an earlier version has none of these
    fields["choices"] = tuple(record.get("choices", ("allow", "deny")))
    fields["questions"] = tuple(map(_question, record.get("questions", ())))
    return RemoteApproval(**fields, connection=connection)


def _question(record: Record) -> MenuQuestion:
    options = tuple((option["label"], option["description"]) for option in record["options"])
    return MenuQuestion(record["text"], record["header"], options, record["multiple"])


def _answer(record: Record) -> Answer[Any]:
    fields = _fields(Answer, record)
    for name in ("denied_tools", "notes"):
        fields[name] = tuple(fields.get(name, ()))
    fields["usage"] = msgspec.convert(record["usage"], Usage | None)
    fields["delivery"] = delivery_of_record(record["delivery"])
    return Answer(**fields, structured_output=record["value"])


def _event(kind: str, data: Any) -> AnyEvent:
    event: Any = msgspec.convert(data, AnyEvent)
    return event  # type: ignore[no-any-return]
