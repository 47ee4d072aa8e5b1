"""A completion, its chunks and its errors in the words of the chat API.

The tools that an agent called have been run by it: they are reported as `executed_tools`, in the shape of tool calls,
and never as `tool_calls`, which a client would take for a wish that it run them. What came of them, and whatever else only
a command line knows, stands under `proctor`. An error names its causes, outermost first; its status is in a table.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from proctor.actors import errors as e
from proctor.actors.error_kinds import chain, facts_of, is_retryable
from proctor.actors.gateways.openai.requests import Refused
from proctor.actors.limits.admission import until_reset
from proctor.actors.serving.chunks import ToolOutput, ToolUse
from proctor.actors.serving.completion import Completion
from proctor.protocols.vocabulary import Usage

Body = dict[str, Any]

LEFT = 499
"""The client went away before there was an answer."""

STATUSES: Mapping[int, int] = {422: 400, 504: 408, 502: 500}
"""An error's HTTP status → that of the chat API, which has a word of its own for some."""

TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "invalid_request_error",
    408: "timeout",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    LEFT: "cancelled",
    503: "overloaded_error",
}


@attrs.frozen
class Fault:
    """An error as a response: its `status`, the `body`, and the seconds after which it is worth another try."""

    status: int
    body: Body
    retry_after: int | None = None


def status_of(error: BaseException) -> int:
    """The status of an error in the chat API."""
    status = facts_of(error).http_status
    return STATUSES.get(status, status)


def fault_of(error: BaseException, *, status: int | None = None, code: str | None = None) -> Fault:
    """The error as a response."""
    status = status or status_of(error)
    causes = [{"type": type(each).__name__, "message": str(each)} for each in chain(error)]
    param = error.param if isinstance(error, Refused) else None
    told: Body = {
        "message": str(error),
        "type": TYPES.get(status, "server_error"),
        "param": param,
        "code": code or _code(error),
        "causes": causes,
    }
    if (delivery := e.delivery_of(error)) is not None:
        told["delivery"] = delivery.facts()
    return Fault(status, {"error": told}, _retry_after(error, status))


def _code(error: BaseException) -> str | None:
    for each in chain(error):
        if isinstance(each, e.ProviderError) and (each.ending or each.outcome):
            return each.ending or each.outcome
    return None


def _retry_after(error: BaseException, status: int) -> int | None:
    for each in chain(error):
        if isinstance(each, e.ProviderError) and each.resets_at is not None:
            seconds = until_reset(each.resets_at)
            return None if seconds is None else max(1, math.ceil(seconds))
        if isinstance(each, e.BudgetExceeded) and each.seconds is not None and math.isfinite(each.seconds):
            return max(1, math.ceil(each.seconds))
    return 1 if status in (409, 503) and is_retryable(error) else None


def head_of(model: str) -> Body:
    """What all pieces of one response begin with."""
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}


def usage_of(usage: Usage | None) -> Body | None:
    """The tokens; None where the command line counted none."""
    if usage is None:
        return None
    cached = usage.cache_read_tokens or 0
    prompt = (usage.input_tokens or 0) + cached + (usage.cache_write_tokens or 0)
    said = usage.output_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def content_of(completion: Completion, *, structured: bool) -> str:
    """The answer as text; the value of a schema as JSON."""
    if structured:
        return msgspec.json.encode(completion.raw.structured_output).decode()
    return completion.text


def tool_of(call: ToolUse) -> Body:
    """One tool that the agent has used."""
    arguments = msgspec.json.encode(call.input).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def output_of(output: ToolOutput) -> Body:
    """What came of a tool that the agent has used."""
    told = {
        "tool_call_id": output.id,
        "name": output.name,
        "content": output.text,
        "is_error": output.is_error,
    }
    beside = output.metadata.get("result")
    return {**told, "duration": output.duration, **({} if beside is None else {"metadata": beside})}


def whole(head: Body, completion: Completion, metadata: Mapping[str, Any], *, structured: bool) -> Body:
    """The body of a response that is not streamed."""
    message: Body = {"role": "assistant", "content": content_of(completion, structured=structured)}
    if completion.tool_calls:
        message["executed_tools"] = [tool_of(call) for call in completion.tool_calls]
    if completion.thinking:
        message["reasoning_content"] = completion.thinking
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {
        **head,
        "object": "chat.completion",
        "choices": [choice],
        "usage": usage_of(completion.usage),
        "proctor": {**metadata, **_results_of(completion)},
    }


def _results_of(completion: Completion) -> Body:
    results = [output_of(output) for output in completion.tool_outputs]
    return {"tool_results": results} if results else {}


def piece(head: Body, delta: Body, *, last: bool = False, **more: Any) -> Body:
    """One piece of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": "stop" if last else None, "logprobs": None}
    return {**head, "object": "chat.completion.chunk", "choices": [choice], **more}
