"""Any agent that proctor runs, as a solver of Inspect: INSPECT_ASYNC_BACKEND=trio inspect eval task.py --solver examples/inspect_solver.py

Each sample is a run of its own, with its prompt as the request, in a new folder unless `cwd` names one. What the agent wrote and its tools become
messages of the sample; tokens and dollars count for its limits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sniffio
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolCall, ToolCallError

import proctor


@solver
def proctor_agent(
    kind: str = "claude", cwd: str | None = None, timeout: float = 600.0, **options: Any
) -> Solver:
    """An agent of this kind (`claude`, `codex`, `opencode`, `gemini`) with its options, such as `model`, `executable` and `env`. Tools are allowed
    unless `permission` says otherwise. A sample fails with the reason when there is no answer within `timeout` seconds."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if sniffio.current_async_library() != "trio":
            raise RuntimeError("proctor runs on Trio: set INSPECT_ASYNC_BACKEND=trio")
        with ExitStack() as stack:
            folder = cwd or stack.enter_context(tempfile.TemporaryDirectory(prefix="proctor-sample-"))
            spec = getattr(proctor, kind)("sample", cwd=folder, **{"permission": "allow", **options})
            async with proctor.stream(spec, state.input_text, timeout=timeout) as run:
                events = [event async for event in run]
            state.store.set("files", _files(Path(folder)))
        answer = run.answer
        if answer.outcome != "ok":
            raise RuntimeError(f"{kind}: {answer.outcome}: {answer.error}")
        state.messages += messages(events)
        state.output = ModelOutput.from_content(answer.model or kind, answer.text)
        state.output.usage = usage(kind, answer)
        state.output.time = answer.duration
        state.metadata |= {"session_id": answer.session_id, "cost_usd": answer.cost_usd}
        return state

    return solve


def messages(events: Sequence[proctor.AnyEvent]) -> list[ChatMessage]:
    """What the agent itself wrote and did, as messages; that of its subagents is left out."""
    found: list[ChatMessage] = []
    for event in events:
        match event:
            case proctor.Text(parent=None):
                found.append(ChatMessageAssistant(content=event.text))
            case proctor.ToolCall(parent=None):
                call = ToolCall(id=event.id, function=event.name, arguments=event.input)
                found.append(ChatMessageAssistant(content="", tool_calls=[call]))
            case proctor.ToolResult(parent=None):
                error = ToolCallError("unknown", event.text) if event.is_error else None
                found.append(ChatMessageTool(content=event.text, tool_call_id=event.id, error=error))
            case _:
                pass
    return found


def usage(kind: str, answer: proctor.Answer) -> ModelUsage | None:
    """Tokens and dollars as Inspect counts them: those from a cache apart."""
    if answer.usage is None:
        return None
    read, written = answer.usage.cache_read_tokens or 0, answer.usage.cache_write_tokens or 0
    new = answer.usage.input_tokens or 0
    new -= read + written if kind == "codex" else 0  # it counts them among the others
    out = answer.usage.output_tokens or 0
    return ModelUsage(
        input_tokens=new,
        output_tokens=out,
        total_tokens=new + read + written + out,
        input_tokens_cache_read=read,
        input_tokens_cache_write=written,
        total_cost=answer.cost_usd,
    )


def _files(folder: Path) -> dict[str, str]:
    """The text of the files that a sample has left, for its scorer; larger ones than a megabyte are left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 2**20)
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace") for path in files}
