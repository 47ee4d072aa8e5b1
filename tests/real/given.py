"""What an agent may be given beside its prompt: a tool of the host, a server of MCP, files. And the shape of an answer.

Each CLI shows its model all of it in its own way; what the model must have seen of it is here, too.
"""

from __future__ import annotations

import base64
import datetime
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import attrs
import msgspec

import proctor
from proctor.actors.outcomes import Answer
from proctor.actors.plan.mcp import McpServer
from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.plan import Plan
from proctor.actors.runs import stream
from proctor.actors.structured.payloads import BinaryPayload, FilePayload, Payload
from proctor.actors.tools.tools import ToolContext
from proctor.protocols import vocabulary as v
from tests.fakes import tiny_mcp

# -- tools

SECRET = "s3cret-of-tiny"
TINY = McpServer(
    command=sys.executable,
    args=["-I", str(tiny_mcp.__file__)],
    env={"TINY_KEY": SECRET},
    approved=True,
)
MARKED = {"structuredContent": {"seen": 2}, "_meta": {"tiny/marker": "row-7"}}
SEEN = f'I saw {{"PROCTOR_CONTEXT_PROJECT": "p1", "TINY_KEY": "{SECRET}"}}'


@proctor.tool
async def add(a: int, b: int, me: ToolContext) -> str:
    """Add two numbers."""
    return f"{a + b} for {me.values['project']}"


GIVEN: AgentOptions = {"host_tools": [add], "mcp": {"tiny": TINY}, "context": {"project": "p1"}}


@attrs.frozen
class Done:
    """What came of a run: the results of its tools, which of the host's were asked for, and the answer."""

    results: list[v.ToolResult]
    asked: list[str]
    answer: Answer


async def worked(
    plan: Plan, prompt: str = "work", *, schema: object = None, payloads: Sequence[Payload] = ()
) -> Done:
    """Run it to the end, which is good. The server's secret is in no file of its recording (R185)."""
    async with stream(plan, prompt, timeout=120.0, schema=schema, payloads=payloads) as live:
        events = [event async for event in live]
        kept = [
            path.read_bytes() for path in (live.directory / "1").iterdir() if path.name != "stdout.ndjson"
        ]
    assert (live.answer.outcome, live.answer.text) == ("ok", "done"), live.answer
    assert [text for text in kept if SECRET.encode() in text] == []
    asked = [event.tool for event in events if isinstance(event, v.ToolRequested)]
    return Done([event for event in events if isinstance(event, v.ToolResult)], asked, live.answer)


# -- files


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)
PICTURE = BinaryPayload(PNG, "image/png", "red.png")
ENCODED = base64.b64encode(PNG).decode()
SAID = "The sum is 4."
NOTE = FilePayload("note.txt", SAID)

# -- an answer in a shape


class Line(msgspec.Struct):
    """A position of an invoice."""

    article: str
    amount: Annotated[int, msgspec.Meta(ge=1)]


class Invoice(msgspec.Struct):
    """What the model is to fill in."""

    due: datetime.date
    lines: Annotated[list[Line], msgspec.Meta(min_length=1)]
    note: str | None = None


GOOD: Mapping[str, Any] = {"due": "2024-02-29", "lines": [{"article": "nut", "amount": 2}], "note": None}
BAD: Mapping[str, Any] = {**GOOD, "due": "tomorrow"}
INVOICE = Invoice(datetime.date(2024, 2, 29), [Line("nut", 2)])


def assert_right(answer: Answer, attempts: int) -> None:
    """The answer is the invoice, after so many attempts."""
    assert (answer.outcome, answer.value, answer.attempts) == ("ok", INVOICE, attempts), answer
    assert answer.structured_output == GOOD
