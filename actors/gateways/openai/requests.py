"""What a client of the chat API asks, as a completion request.

Guarantees: a parameter that an agent cannot honour is refused with its name, and one with the value that changes nothing is
taken; nothing that was said is dropped. Pictures and files come in the message itself: nothing is fetched for a client.
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

READ = frozenset(("messages", "model", "response_format", "stream", "stream_options"))
"""Parameters that are carried out."""

INDIFFERENT = frozenset(
    (
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "safety_identifier",
        "user",
        "prompt_cache_retention",
    )
)
"""Parameters that change no answer, whatever they say."""

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
"""Parameters that no agent can honour → the values that ask for nothing; null does not, either."""

WHY: Mapping[str, str] = {
    "tools": "the agent runs tools of its own, and cannot call yours",
    "functions": "the agent runs tools of its own, and cannot call yours",
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


class Refused(BadOption):
    """A request that is not served; `param` names what is wrong in it, where that has a name."""

    def __init__(self, param: str | None, why: str) -> None:
        super().__init__(why)
        self.param = param


@attrs.frozen(kw_only=True)
class Asked:
    """One request: which model, what, whether it is to be streamed, and whether its last piece counts the tokens."""

    model: str
    request: CompletionRequest
    stream: bool = False
    include_usage: bool = False
    structured: bool = False


def asked_of(body: bytes) -> Asked:
    """What a request's body asks for. Raises `Refused`."""
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
    except Refusal as error:
        raise Refused(None, f"the body is no JSON object: {error}") from error
    _check(given)
    model = _typed(given, "model", str, None)
    if not model:
        raise Refused("model", "model is missing: GET /v1/models lists what there is")
    schema = _schema(given.get("response_format"))
    options = _object(_typed(given, "stream_options", dict, {}))
    return Asked(
        model=model,
        request=attrs.evolve(_request(_typed(given, "messages", list, [])), schema=schema),
        stream=_typed(given, "stream", bool, False),
        include_usage=bool(options.get("include_usage")),
        structured=schema is not None,
    )


def _check(given: Object) -> None:
    for name, value in given.items():
        if name in READ or name in INDIFFERENT or value is None:
            continue
        if name not in NEUTRAL:
            raise Refused(name, f"the parameter {name!r} is not known")
        if value not in NEUTRAL[name]:
            why = WHY.get(name, "no agent's command line takes it")
            raise Refused(name, f"{name} cannot be honoured: {why}")


def _typed(given: Object, name: str, kind: type, default: Any) -> Any:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise Refused(name, f"{name} must be of the type {kind.__name__}, got {value!r}")
    return value


def _object(value: object) -> Object:
    return cast("Object", value) if isinstance(value, dict) else {}


def _items(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def _schema(wanted: Any) -> Object | None:
    match wanted:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": schema, "name": str(name)}} if _object(schema):
            return {"title": name, **_object(schema)}
        case _:
            accepted = "text, json_object, or json_schema with a name and a schema"
            raise Refused("response_format", f"response_format is one of {accepted}, got {wanted!r}")


# -- messages


def _request(messages: Sequence[Any]) -> CompletionRequest:
    if not messages:
        raise Refused("messages", "messages is empty: there is nothing to answer")
    payloads: list[Payload] = []
    names: dict[str, str] = {}
    said = [_message(each, f"messages[{n}]", names, payloads) for n, each in enumerate(messages)]
    leading = 0
    while leading < len(said) and said[leading].role == "system":
        leading += 1
    preamble = "\n\n".join(text_of(message.content) for message in said[:leading])
    rest = said[leading:]
    last = rest.pop().content if rest and rest[-1].role == "user" else ""
    return CompletionRequest(
        prompt=last, preamble=preamble, history=tuple(rest), payloads=tuple(payloads), timeout=None
    )


def _message(given: Any, at: str, names: dict[str, str], payloads: list[Payload]) -> Message:
    message = _object(given)
    if message.get("role") not in ROLES:
        raise Refused(at, f"{at} must have one of the roles {', '.join(ROLES)}")
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
                raise Refused(f"{at}.tool_calls", f"a tool call has an id and a function, got {call!r}")


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
        raise Refused(f"{at}.content", f"{at}.content is a text or a list of parts, got {content!r}")
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
            raise Refused(at, f"{at} is no part that an agent can be sent: {kind!r}")
    payloads.append(payload)
    return f"[{payload.name}]"


def _data(url: str, at: str) -> tuple[str, bytes]:
    if (found := _DATA.fullmatch(url)) is None:
        raise Refused(at, f"{at} must carry its content in a data URL with base64: nothing is fetched here")
    return found[1], _decoded(found[2], at)


def _decoded(text: str, at: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Refused(at, f"{at} is no base64: {error}") from error
