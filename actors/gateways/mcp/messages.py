"""The messages of MCP for a server with tools: what a client may send, and the answers.

The first request of a client decides how it is served: the revisions up to 2025-11-25 begin with `initialize`, and from 2026-07-28
on each request names its revision in `_meta`. The other way is refused from then on. A request that breaks the protocol raises
`Refused`, an error of JSON-RPC. A message is an object: batches, which one revision had, are refused.

Not here: streams, the results of tools, and HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from msgspec import UNSET, UnsetType, field

from proctor.actors.serving.toolset import Send
from proctor.protocols.framing import Oversized
from proctor.protocols.lenient import Refusal

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`."""
STATELESS = ("2026-07-28",)
"""The revisions in which each request stands for itself."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR, UNSUPPORTED_REVISION = -32602, -32603, -32022

_PREFIX = "io.modelcontextprotocol/"
_TOOLS = frozenset({"tools/list", "tools/call"})
_METHODS: Mapping[bool, frozenset[str]] = {
    False: _TOOLS | {"initialize", "ping"},
    True: _TOOLS | {"server/discover"},
}
"""The methods of both ways; True for the stateless one."""

Id = int | str
Object = dict[str, Any]
CallTool = Callable[[str, Mapping[str, Any], Send | None], Awaitable[Object]]
"""Calls a tool by name with arguments and where its progress goes, and gives the result."""


class Refused(Exception):
    """A message that is answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str, id: Id | None = None, **data: Any) -> None:
        super().__init__(message)
        self.answer = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **data}}


class Meta(msgspec.Struct, frozen=True):
    """The `_meta` of a message: where progress goes, and in a stateless revision that revision."""

    progress: Id | None = field(default=None, name="progressToken")
    revision: str | UnsetType = field(default=UNSET, name=f"{_PREFIX}protocolVersion")
    capabilities: Object | UnsetType = field(default=UNSET, name=f"{_PREFIX}clientCapabilities")


class Params(msgspec.Struct, frozen=True):
    """The parameters that every message may have."""

    meta: Meta | None = field(default=None, name="_meta")


class _Client(msgspec.Struct, frozen=True):
    name: str
    version: str


class Initialize(Params, frozen=True, kw_only=True, rename="camel"):
    """The parameters of `initialize`."""

    protocol_version: str
    capabilities: Object
    client_info: _Client


class ListTools(Params, frozen=True, kw_only=True):
    """The parameters of `tools/list`. All tools are on one page, whatever the cursor."""

    cursor: str | None = None


class ToolCall(Params, frozen=True, kw_only=True):
    """The parameters of `tools/call`."""

    name: str
    arguments: Object | None = None


class Cancelled(Params, frozen=True, kw_only=True, rename="camel"):
    """The parameters of `notifications/cancelled`."""

    request_id: Id


_TYPES: Mapping[str, type[Params]] = {
    "initialize": Initialize,
    "tools/list": ListTools,
    "tools/call": ToolCall,
    "notifications/cancelled": Cancelled,
}


@attrs.frozen
class Message:
    """A request of a client, or without an `id` a notification."""

    id: Id | None
    method: str
    params: Params

    @property
    def meta(self) -> Meta:
        """Its `_meta`, empty when it has none."""
        return self.params.meta or Meta()


class _Frame(msgspec.Struct):
    id: Id | UnsetType = UNSET
    jsonrpc: Any = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


def read(line: bytes | Oversized) -> Message | None:
    """The message of a line; None for a blank line, a response, and a notification with invalid parameters."""
    if isinstance(line, Oversized):
        raise Refused(INVALID_REQUEST, f"a message of {line.size} bytes is too long")
    if not line.strip():
        return None
    try:
        line.decode()  # msgspec does not look into the strings that it skips
        frame = msgspec.json.decode(line, type=_Frame)
    except msgspec.ValidationError as error:
        raise Refused(INVALID_REQUEST, f"not a message of JSON-RPC: {error}") from None
    except Refusal as error:
        raise Refused(PARSE_ERROR, f"not JSON: {error}") from None
    id = None if isinstance(frame.id, UnsetType) else frame.id
    if frame.jsonrpc != "2.0":
        raise Refused(INVALID_REQUEST, "not a message of JSON-RPC 2.0", id)
    if frame.method is not None:
        return _with_params(id, frame.method, bytes(frame.params))
    if not (bytes(frame.result) or bytes(frame.error)):
        raise Refused(INVALID_REQUEST, "a message has a method, a result or an error", id)
    return None  # no request goes to the client, so no response is waited for


def _with_params(id: Id | None, method: str, params: bytes) -> Message | None:
    if params in (b"", b"null"):
        params = b"{}"
    if not params.startswith(b"{"):
        raise Refused(INVALID_REQUEST, "the params of a message must be an object", id)
    try:
        return Message(id, method, msgspec.json.decode(params, type=_TYPES.get(method, Params)))
    except Refusal as error:
        if id is None:
            return None
        raise Refused(INVALID_PARAMS, f"invalid params of {method!r}: {error}", id) from None


@attrs.frozen
class Offer:
    """What a server offers to each client: what it is, the list of its tools as it is now, and how one is called. `changes`: the list may become another
    one, of which clients with a handshake are notified."""

    name: str
    version: str
    instructions: str
    tools: Callable[[], Sequence[Object]]
    call: CallTool
    changes: bool = False


class Dialogue:
    """The requests of one client and the answers to those that call no tool."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._about: Object = {"capabilities": {"tools": {"listChanged": offer.changes}}}
        if offer.instructions:
            self._about["instructions"] = offer.instructions
        self._server = {"name": offer.name, "version": offer.version}
        self._stateless: bool | None = None
        self._initialized = False

    def answer(self, request: Message) -> Object | None:
        """The result of a request; None for a call of a tool. Raises `Refused` for what is not served."""
        self._admit(request)
        match request.method:
            case "initialize":
                return self._initialize(request)
            case "server/discover":
                return self.complete({**self._about, "supportedVersions": STATELESS, **_CACHE})
            case "tools/list":
                return self.complete({"tools": self._offer.tools(), **(_CACHE if self._stateless else {})})
            case "tools/call":
                return None
            case _:
                return {}

    @property
    def takes_notifications(self) -> bool:
        """Whether this client has begun with the handshake."""
        return self._initialized

    def complete(self, result: Object) -> Object:
        """A result as this client's revision has it."""
        if not self._stateless:
            return result
        meta = {**result.get("_meta", {}), f"{_PREFIX}serverInfo": self._server}
        return {**result, "resultType": "complete", "_meta": meta}

    def _initialize(self, request: Message) -> Object:
        assert isinstance(request.params, Initialize)
        self._initialized = True
        asked = request.params.protocol_version
        revision = asked if asked in HANDSHAKE else HANDSHAKE[-1]
        return {"protocolVersion": revision, **self._about, "serverInfo": self._server}

    def _admit(self, request: Message) -> None:
        named = request.method != "initialize" and request.meta.revision is not UNSET
        if self._stateless is None:
            self._stateless = named
        if self._stateless:
            _check_stateless(request)
        elif named:
            text = "this client began with the handshake, so its requests name no revision"
            raise Refused(INVALID_REQUEST, text, request.id)
        if request.method not in _METHODS[self._stateless]:
            raise Refused(METHOD_NOT_FOUND, "Method not found", request.id, data=request.method)
        if not (self._stateless or self._initialized or request.method in ("initialize", "ping")):
            raise Refused(INVALID_PARAMS, "the first request must be initialize", request.id)


_CACHE: Mapping[str, Any] = {"ttlMs": 0, "cacheScope": "private"}


def _check_stateless(request: Message) -> None:
    revision, params = request.meta.revision, request.params
    if isinstance(params, Initialize):
        revision = params.protocol_version
    elif isinstance(revision, UnsetType) or request.meta.capabilities is UNSET:
        names = f"'{_PREFIX}protocolVersion' and '{_PREFIX}clientCapabilities'"
        raise Refused(INVALID_PARAMS, f"params._meta must have {names}", request.id)
    if isinstance(params, Initialize) or revision not in STATELESS:
        data = {"supported": STATELESS, "requested": revision}
        raise Refused(UNSUPPORTED_REVISION, "Unsupported protocol version", request.id, data=data)
