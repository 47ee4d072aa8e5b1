"""Parsing of requests to the chat API.

A parameter that an agent cannot honour is refused by name; its neutral values are accepted. No message is dropped.
Images and files must be in the message itself: nothing is fetched.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import msgspec

from proctor.actors.errors import BadOption
from proctor.actors.serving.completion import CompletionRequest
from proctor.actors.structured.payloads import BinaryPayload, FilePayload, Payload
from proctor.protocols.lenient import Refusal
from proctor.protocols.prompt import Called, Message, Role, text_of

Object = Mapping[str, Any]

SUPPORTED = frozenset(("messages", "model", "response_format", "stream", "stream_options"))
"""Parameters that have an effect."""

IGNORED = frozenset(
    (
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "safety_identifier",
        "user",
        "prompt_cache_retention",
    )
)
"""Parameters that are ignored, because they do not change the answer."""

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "max_completion_tokens": (),
    "max_tokens": (),
    "modalities": (["text"],),
    "n": (1,),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "seed": (),
    "service_tier": ("auto", "default"),
    "stop": ([],),
    "store": (False,),
    "temperature": (1,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "verbosity": (),
    "web_search_options": (),
}
"""Parameters that no agent can honour → their neutral values; null is always neutral."""

REASONS: Mapping[str, str] = {
    "tools": "the agent runs its own tools and cannot call yours",
    "functions": "the agent runs its own tools and cannot call yours",
    "n": "an agent gives one answer",
}

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

_DATA = re.compile(r"data:([^;,]+)(?:;[^,]*)?;base64,(.*)", re.DOTALL)


class InvalidRequest(BadOption):
    """A request that is refused; `param` names the invalid parameter, if there is one."""

    def __init__(self, param: str | None, why: str) -> None:
        super().__init__(why)
        self.param = param


@attrs.frozen(kw_only=True)
class ChatRequest:
    """A parsed request; with `include_usage` the last chunk of its stream has the token counts."""

    model: str
    request: CompletionRequest
    stream: bool = False
    include_usage: bool = False
    structured: bool = False


def parse_request(body: bytes) -> ChatRequest:
    """Parse the body of a request. Raises `InvalidRequest`."""
    try:
        params = msgspec.json.decode(body, type=dict[str, Any])
    except Refusal as error:
        raise InvalidRequest(None, f"the body is not a JSON object: {error}") from error
    _check(params)
    model = _typed(params, "model", str, None)
    if not model:
        raise InvalidRequest("model", "model is missing: GET /v1/models lists the models")
    schema = _schema(params.get("response_format"))
    options = _object(_typed(params, "stream_options", dict, {}))
    return ChatRequest(
        model=model,
        request=attrs.evolve(_request(_typed(params, "messages", list, [])), schema=schema),
        stream=_typed(params, "stream", bool, False),
        include_usage=bool(options.get("include_usage")),
        structured=schema is not None,
    )


def _check(params: Object) -> None:
    for name, value in params.items():
        if name in SUPPORTED or name in IGNORED or value is None:
            continue
        if name not in NEUTRAL:
            raise InvalidRequest(name, f"unknown parameter {name!r}")
        if value not in NEUTRAL[name]:
            why = REASONS.get(name, "no command line has this option")
            raise InvalidRequest(name, f"unsupported parameter {name}: {why}")


def _typed(params: Object, name: str, kind: type, default: Any) -> Any:
    value = params.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise InvalidRequest(name, f"{name} must be of the type {kind.__name__}, got {value!r}")
    return value


def _object(value: object) -> Object:
    return cast("Object", value) if isinstance(value, dict) else {}


def _items(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def _schema(response_format: Any) -> Object | None:
    match response_format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": schema, "name": str(name)}} if _object(schema):
            return {"title": name, **_object(schema)}
        case _:
            accepted = "text, json_object, or json_schema with a name and a schema"
            raise InvalidRequest(
                "response_format", f"response_format must be {accepted}, got {response_format!r}"
            )


# -- messages


def _request(messages: Sequence[Any]) -> CompletionRequest:
    if not messages:
        raise InvalidRequest("messages", "messages is empty: send at least one message")
    payloads: list[Payload] = []
    names: dict[str, str] = {}
    parsed = [_message(each, f"messages[{n}]", names, payloads) for n, each in enumerate(messages)]
    leading = 0
    while leading < len(parsed) and parsed[leading].role == "system":
        leading += 1
    preamble = "\n\n".join(text_of(message.content) for message in parsed[:leading])
    rest = parsed[leading:]
    last = rest.pop().content if rest and rest[-1].role == "user" else ""
    return CompletionRequest(
        prompt=last, preamble=preamble, history=tuple(rest), payloads=tuple(payloads), timeout=None
    )


def _message(value: Any, at: str, names: dict[str, str], payloads: list[Payload]) -> Message:
    message = _object(value)
    if message.get("role") not in ROLES:
        raise InvalidRequest(at, f"{at} must have one of the roles {', '.join(ROLES)}")
    calls = tuple(_calls(_items(message.get("tool_calls")), at))
    names.update((call.id, call.name) for call in calls)
    name = names.get(str(message.get("tool_call_id"))) or message.get("name")
    return Message(
        ROLES[message["role"]], _content(message.get("content"), at, payloads), calls, name and str(name)
    )


def _calls(calls: Sequence[Any], at: str) -> Iterator[Called]:
    for call in calls:
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                yield Called(id, name, _arguments(arguments))
            case _:
                raise InvalidRequest(
                    f"{at}.tool_calls", f"a tool call must have an id and a function, got {call!r}"
                )


def _arguments(text: str) -> Object:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except Refusal:
        return {"arguments": text}


def _content(content: Any, at: str, payloads: list[Payload]) -> str | tuple[str, ...]:
    if content is None or isinstance(content, str):
        return content or ""
    parts = _items(content)
    if not parts:
        raise InvalidRequest(
            f"{at}.content", f"{at}.content must be a text or a list of parts, got {content!r}"
        )
    return tuple(_part(part, f"{at}.content[{n}]", payloads) for n, part in enumerate(parts))


def _part(part: Any, at: str, payloads: list[Payload]) -> str:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            mime, data = _data(url, at)
            payload: Payload = BinaryPayload(data, mime, f"image-{len(payloads) + 1}")
        case {"type": "file", "file": {"file_data": str(url), "filename": str(name)}}:
            mime, data = _data(url, at)
            payload = FilePayload(name, data, mime)
        case {"type": "input_audio", "input_audio": {"data": str(encoded), "format": str(form)}}:
            payload = BinaryPayload(_decoded(encoded, at), f"audio/{form}", f"audio-{len(payloads) + 1}")
        case _:
            kind = _object(part).get("type")
            raise InvalidRequest(at, f"{at} has a type that agents do not accept: {kind!r}")
    payloads.append(payload)
    return f"[{payload.name}]"


def _data(url: str, at: str) -> tuple[str, bytes]:
    if (match := _DATA.fullmatch(url)) is None:
        raise InvalidRequest(at, f"{at} must be a data URL with base64: nothing is fetched")
    return match[1], _decoded(match[2], at)


def _decoded(text: str, at: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(at, f"{at} is not base64: {error}") from error
