"""Responses, chunks and errors of the chat API.

The tools that an agent called have already run, so they are reported as `executed_tools` in the shape of tool calls, and never as
`tool_calls`, which would ask the client to run them. Their results, and other facts of a command line, are under `proctor`.
An error lists its causes, outermost first.
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
from proctor.actors.error_kinds import chain, facts_of, is_retryable, is_safe_to_repeat
from proctor.actors.gateways.openai.requests import InvalidRequest
from proctor.actors.limits.admission import until_reset
from proctor.actors.serving.chunks import ToolOutput, ToolUse
from proctor.actors.serving.completion import Completion
from proctor.protocols.vocabulary import Usage

Body = dict[str, Any]

CLIENT_CLOSED = 499
"""The client disconnected before the answer."""

STATUSES: Mapping[int, int] = {422: 400, 504: 408, 502: 500}
"""The HTTP status of an error → that of the chat API, where it differs."""

TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "invalid_request_error",
    408: "timeout",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    CLIENT_CLOSED: "cancelled",
    503: "overloaded_error",
}


@attrs.frozen
class Fault:
    """An error as a response. `retry_after` are the seconds after which a retry may help; `is_repeatable` says that nothing of the
    request was carried out."""

    status: int
    body: Body
    retry_after: int | None = None
    is_repeatable: bool = False

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that tell clients whether and when to repeat the request."""
        # the SDKs of OpenAI (Python 3.54) repeat 408, 409, 429 and each 5xx twice unless this header forbids it: an agent
        # would carry out its prompt three times
        headers = {"x-should-retry": "true" if self.is_repeatable else "false"}
        return headers if self.retry_after is None else {**headers, "retry-after": str(self.retry_after)}


def status_of(error: BaseException) -> int:
    """The status of an error in the chat API."""
    status = facts_of(error).http_status
    return STATUSES.get(status, status)


def fault_of(error: BaseException, *, status: int | None = None, code: str | None = None) -> Fault:
    """The error as a response."""
    status = status or status_of(error)
    causes = [{"type": type(each).__name__, "message": str(each)} for each in chain(error)]
    param = error.param if isinstance(error, InvalidRequest) else None
    record: Body = {
        "message": str(error),
        "type": TYPES.get(status, "server_error"),
        "param": param,
        "code": code or _code(error),
        "causes": causes,
    }
    if (delivery := e.delivery_of(error)) is not None:
        record["delivery"] = delivery.facts()
    return Fault(status, {"error": record}, _retry_after(error, status), is_safe_to_repeat(error))


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
    """The fields that all chunks of one response start with."""
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}


def usage_of(usage: Usage | None) -> Body | None:
    """The token counts; None when the command line reported none."""
    if usage is None:
        return None
    cached = usage.cache_read_tokens or 0
    prompt = (usage.input_tokens or 0) + cached + (usage.cache_write_tokens or 0)
    output = usage.output_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def content_of(completion: Completion, *, structured: bool) -> str:
    """The answer as text; the value of a schema as JSON."""
    if structured:
        return msgspec.json.encode(completion.raw.structured_output).decode()
    return completion.text


def tool_of(call: ToolUse) -> Body:
    """One tool call of the agent."""
    arguments = msgspec.json.encode(call.input).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def output_of(output: ToolOutput) -> Body:
    """The result of a tool call of the agent."""
    record = {
        "tool_call_id": output.id,
        "name": output.name,
        "content": output.text,
        "is_error": output.is_error,
    }
    metadata = output.metadata.get("result")
    return {**record, "duration": output.duration, **({} if metadata is None else {"metadata": metadata})}


def response_of(head: Body, completion: Completion, metadata: Mapping[str, Any], *, structured: bool) -> Body:
    """The body of a response without streaming."""
    message: Body = {"role": "assistant", "content": content_of(completion, structured=structured)}
    if completion.tool_calls:
        message["executed_tools"] = [tool_of(call) for call in completion.tool_calls]
    if completion.thinking:
        message["reasoning_content"] = completion.thinking
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    results = [output_of(output) for output in completion.tool_outputs]
    return {
        **head,
        "object": "chat.completion",
        "choices": [choice],
        "usage": usage_of(completion.usage),
        "proctor": {**metadata, **({"tool_results": results} if results else {})},
    }


def chunk_of(head: Body, delta: Body, *, last: bool = False, **more: Any) -> Body:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": "stop" if last else None, "logprobs": None}
    return {**head, "object": "chat.completion.chunk", "choices": [choice], **more}
