"""JSON-RPC from the agent's side: messages in; replies, notifications and questions out.

Our questions are numbered from 0 by our own counter, which collides with the host's on purpose: the real agents do the same.
Both sides tell a request from a reply by the method, never by the id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from proctor.actors.scripted.agent import Agent
from proctor.actors.scripted.frames import Frame, as_frame, encode

TYPE_CHECKING = False

METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST, INTERNAL = -32601, -32602, -32600, -32603


class RpcError(Exception):
    """A request of the host that is refused: the code, the message, and the data that go into the reply."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class RpcConnection:
    """One connection. `tag` writes the `jsonrpc` member; `stamp` adds members to each notification."""

    def __init__(self, agent: Agent, *, tag: bool, stamp: Callable[[], Frame] = dict) -> None:
        self.agent = agent
        self.tag: Frame = {"jsonrpc": "2.0"} if tag else {}
        self.stamp = stamp
        self.requests = 0

    def write(self, frame: Frame) -> None:
        self.agent.write(encode({**self.tag, **frame}).encode("utf-8", "replace"))

    def reply(self, number: object, result: object) -> None:
        self.write({"id": number, "result": result})

    def refuse(self, number: object, error: RpcError) -> None:
        data = {} if error.data is None else {"data": error.data}
        self.write({"id": number, "error": {"code": error.code, "message": str(error), **data}})

    def notify(self, method: str, params: Frame) -> None:
        self.write({"method": method, "params": params, **self.stamp()})

    def ask(self, method: str, params: Frame) -> str:
        """A question to the host. The id under which its answer comes."""
        number, self.requests = self.requests, self.requests + 1
        self.write({"id": number, "method": method, "params": params})
        return str(number)

    def receive(self, line: bytes, methods: Mapping[str, Callable[[object, Frame], None]]) -> None:
        """Take one line of the host: an answer is kept, a method of the table is called with id and params."""
        try:
            frame = as_frame(json.loads(line))
        except ValueError:
            frame = None
        if frame is None:
            self.agent.pipes.write(b"a line that is no message was ignored\n", 2)
        elif "method" not in frame:
            self.agent.answers[str(frame.get("id"))] = frame
        else:
            self.serve(frame, methods)

    def serve(self, frame: Frame, methods: Mapping[str, Callable[[object, Frame], None]]) -> None:
        number = frame.get("id")
        try:
            handle = methods.get(str(frame["method"]))
            if handle is None:
                raise RpcError(METHOD_NOT_FOUND, f'"Method not found": {frame["method"]}')
            handle(number, as_frame(frame.get("params")) or {})
        except RpcError as error:
            if number is not None:
                self.refuse(number, error)
