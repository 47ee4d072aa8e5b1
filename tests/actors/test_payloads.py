from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import proctor
from proctor.actors.errors import BadOption, UnsupportedPayload
from proctor.actors.plan.plan import Plan, acp_plan, claude_plan, codex_plan, opencode_plan
from proctor.actors.runs import ask, stream
from proctor.actors.scripted.launch import SCRIPTED_WIRES, scripted_dialect
from proctor.actors.specs import agent_spec
from proctor.actors.structured.payloads import (
    BinaryPayload,
    FilePayload,
    JsonPayload,
    Payload,
    attachments_of,
)
from proctor.actors.transport.memory import PeerStreams, in_memory
from proctor.protocols.attachment import Attachment, files
from proctor.protocols.conversation import Conversation
from proctor.protocols.dialect import Launch
from proctor.protocols.opencode.serve.dialect import OPENCODE_SERVE
from proctor.protocols.vocabulary import Prompt
from tests.actors.far_end import plan_of
from tests.actors.spoken import GOOD, saying, spec_of
from tests.protocols.lines import reply
from tests.tables import each_row

PIXEL = bytes.fromhex("89504e470d0a1a0a")
NOTE = FilePayload("note.txt", "The sum is 4.")
PICTURE = BinaryPayload(PIXEL, "image/png", "pixel.png")
ZIP = BinaryPayload(b"PK\x03\x04\x00", "application/zip")
DATA = JsonPayload({"a": 1}, {"type": "object"})
TOLD = "note.txt (text/plain):\n```\nThe sum is 4.\n```"
UUID = "5a5c2cf9-6a5c-4b0e-9c7c-0f4b0a3a6d10"
ENCODED = "iVBORw0KGgo="
URL = f"data:image/png;base64,{ENCODED}"


@pytest.mark.covers("R143")
@each_row(
    ("payload", "attachment"),
    [
        (NOTE, Attachment("file", "note.txt", "text/plain", "The sum is 4.")),
        (FilePayload("a.py", b"x = 1\n"), Attachment("file", "a.py", "text/x-python", "x = 1\n")),
        (FilePayload("p.png", PIXEL), Attachment("file", "p.png", "image/png", data=PIXEL)),
        (FilePayload("p", PIXEL), Attachment("file", "p", "application/octet-stream", data=PIXEL)),
        (PICTURE, Attachment("binary", "pixel.png", "image/png", data=PIXEL)),
        (BinaryPayload(PIXEL, "IMAGE/PNG"), Attachment("binary", "data.png", "image/png", data=PIXEL)),
        (BinaryPayload(b"hi", "text/plain", "t"), Attachment("binary", "t", "text/plain", "hi")),
        (JsonPayload({"a": 1}), Attachment("json", "data.json", "application/json", '{\n "a": 1\n}')),
    ],
)
def test_there_are_three_kinds_of_payload(payload: Payload, attachment: Attachment) -> None:
    assert attachments_of([payload]) == (attachment,)


@pytest.mark.covers("R143")
def test_a_payload_is_what_the_file_held_when_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    payload = FilePayload.read(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("after")
    assert (payload.name, payload.content) == ("a.txt", b"before")


@pytest.mark.covers("R143")
def test_the_schema_of_json_is_told_with_it() -> None:
    [told] = attachments_of([DATA])
    assert told.text == '{\n "a": 1\n}\n\nof the JSON schema\n\n{\n "type": "object"\n}'


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (BinaryPayload(b"", "png"), "a MIME type must look like 'image/png'"),
        (JsonPayload(object()), "must be a JSON value"),
        (
            JsonPayload({"a": "x"}, {"properties": {"a": {"type": "integer"}}}),
            r"'data.json' does not match its schema.*\n- /a: ",
        ),
        (JsonPayload(1, {"type": "no type"}), "schema"),
        ("text", "a payload must be one of FilePayload, BinaryPayload, JsonPayload, got 'text'"),
    ],
)
def test_what_is_no_payload_is_refused(payload: Any, why: str) -> None:
    with pytest.raises(BadOption, match=why):
        attachments_of([payload])


# -- each command line


def said_by(name: str, payloads: Sequence[Payload]) -> Any:
    """What is written to a command line that is ready for a prompt, as JSON where it is JSON."""
    dialect = OPENCODE_SERVE if name == "opencode-serve" else SCRIPTED_WIRES[name].dialect
    mode = "session" if name == "opencode-serve" else SCRIPTED_WIRES[name].mode
    talk = Conversation(dialect, launch=Launch(executable=("x",), mode=mode))
    talk.greet()
    for said in GREETINGS.get(name, ()):
        talk.receive(said)
        talk.data_to_send()
    talk.memo.session_id = talk.memo.session_id or "s"
    written = talk.send(Prompt(UUID, "go", attachments=attachments_of(payloads)))
    return json.loads(written) if written.startswith(b"{") else written.decode()


def acp_greeting(**media: bool) -> tuple[bytes, ...]:
    can = {"protocolVersion": 1, "agentCapabilities": {"promptCapabilities": media}}
    return rpc(1, can), rpc(2, {"sessionId": "s"})


def rpc(number: int, result: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n"


GREETINGS: Mapping[str, Sequence[bytes]] = {
    "claude": (reply("greeting"),),
    "acp": acp_greeting(image=True, audio=True),
}
TEXTS = [{"type": "text", "text": "go"}, {"type": "text", "text": TOLD}]


@pytest.mark.covers("R145")
@each_row(
    ("name", "path", "expected"),
    [
        (
            "claude",
            ("message", "content"),
            [*TEXTS, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED}}],
        ),
        ("codex", ("params", "input"), [*TEXTS, {"type": "image", "url": URL}]),
        (
            "acp",
            ("params", "prompt"),
            [*TEXTS, {"type": "image", "mimeType": "image/png", "data": ENCODED}],
        ),
        (
            "opencode-serve",
            ("body", "parts"),
            [*TEXTS, {"type": "file", "mime": "image/png", "filename": "pixel.png", "url": URL}],
        ),
        ("codex-exec", (), f"go\n\n{TOLD}"),
        ("opencode-run", (), f"go\n\n{TOLD}"),
    ],
)  # fmt: skip
def test_each_command_line_is_sent_payloads_in_its_own_way(
    name: str, path: Sequence[str], expected: Any
) -> None:
    assert reduce(getitem, path, said_by(name, [NOTE, PICTURE])) == expected


@pytest.mark.covers("R145")
def test_a_document_is_a_block_of_its_own_for_claude() -> None:
    [_, block] = said_by("claude", [BinaryPayload(b"%PDF\xff", "application/pdf", "a.pdf")])["message"][
        "content"
    ]
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERv8="}
    assert block == {"type": "document", "title": "a.pdf", "source": source}


@pytest.mark.covers("R145")
@pytest.mark.parametrize(("name", "flag"), [("codex-exec", "--image"), ("opencode-run", "--file")])
def test_a_one_shot_run_is_told_of_files_by_its_arguments(name: str, flag: str) -> None:
    attachments = attachments_of([NOTE, PICTURE, PICTURE])
    wanted = Launch(executable=("x",), mode="oneshot", scratch="/s", attachments=attachments)
    command = SCRIPTED_WIRES[name].dialect.launch(wanted)
    assert [word for word in command.argv if word.startswith(flag)] == [
        f"{flag}=/s/1-pixel.png",
        f"{flag}=/s/2-pixel.png",
    ]
    assert command.files == {"1-pixel.png": PIXEL, "2-pixel.png": PIXEL}


def test_a_name_cannot_lead_a_file_out_of_its_folder() -> None:
    [name] = files(attachments_of([BinaryPayload(PIXEL, "image/png", "../../etc/x y")]))
    assert name == "1-.._.._etc_x_y"


def test_a_prompt_of_text_alone_is_written_as_ever() -> None:
    assert said_by("claude", [])["message"]["content"] == "go"


# -- what it cannot take

PLANS: Mapping[str, tuple[Plan, Payload]] = {
    "claude": (claude_plan("a", {"executable": "/x/claude"}), ZIP),
    "claude one-shot": (claude_plan("a", {"executable": "/x/claude", "mode": "oneshot"}), PICTURE),
    "codex": (codex_plan("a", {"executable": "/x/codex"}), ZIP),
    "codex exec": (codex_plan("a", {"executable": "/x/codex", "mode": "exec"}), ZIP),
    "opencode": (opencode_plan("a", {"executable": "/x/opencode"}), ZIP),
    "opencode run": (opencode_plan("a", {"executable": "/x/opencode", "mode": "run"}), ZIP),
    "acp": (acp_plan("a", ["/x/agent"], {}), ZIP),
}


@pytest.mark.covers("R147")
@pytest.mark.parametrize("name", PLANS)
async def test_a_payload_that_a_command_line_cannot_take_is_refused_before_anything_starts(
    name: str,
) -> None:
    plan, payload = PLANS[name]
    with pytest.raises(
        UnsupportedPayload, match=rf"{plan.dialect.name} cannot take a binary payload of type"
    ) as caught:
        await ask(plan, "go", payloads=[NOTE, payload])
    assert (caught.value.cli, caught.value.kind) == (plan.dialect.name, "binary")


@pytest.mark.covers("R147")
async def test_an_agent_refuses_it_too_and_goes_on(autojump_clock: MockClock) -> None:
    async with proctor.open_supervisor([spec_of(saying(**GOOD))]) as sup:
        agent = sup.agent("agent")
        with pytest.raises(UnsupportedPayload, match="application/zip"):
            await agent.ask("go", payloads=[ZIP])
        answer = await agent.ask("go", payloads=[PICTURE])
        turns = (await agent.status()).turns
    assert (answer.outcome, turns) == ("ok", 1)


@pytest.mark.covers("R147")
async def test_an_agent_that_says_it_takes_no_pictures_is_sent_none(autojump_clock: MockClock) -> None:
    heard: list[str] = []

    async def blind(side: PeerStreams) -> int | None:
        async for said in side.lines():
            frame = json.loads(said)
            heard.append(frame["method"])
            result = {"initialize": {"protocolVersion": 1}}.get(frame["method"], {"sessionId": "s"})
            await side.send_all(rpc(frame["id"], result))
        return None

    plan = attrs.evolve(
        acp_plan("a", ["x"], {"home": "private", "extra": ("x",)}),
        product=None,
        reach=in_memory(blind, name="x"),
    )
    with pytest.raises(UnsupportedPayload, match="image/png"):
        await ask(plan, "go", payloads=[PICTURE])
    async with proctor.open_supervisor([agent_spec("a", plan, {})]) as sup:
        with pytest.raises(UnsupportedPayload, match="image/png"):
            await sup.agent("a").ask("go", payloads=[PICTURE])
    assert heard == ["initialize", "session/new"] * 2


@pytest.mark.covers("R144")
async def test_payloads_wait_with_their_request_and_travel_with_it(autojump_clock: MockClock) -> None:
    heard: list[Any] = []

    spec = spec_of(saying(heard=heard, **GOOD))
    async with proctor.open_supervisor([spec]) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(sup.agent("agent").ask, "one")
        await sup.agent("agent").ask("go", payloads=[NOTE, DATA])
    told = [part["text"] for part in next(content for content in heard if not isinstance(content, str))]
    assert told[:2] == ["go", TOLD]
    assert told[2].startswith("data.json (application/json):")


# -- temporary files


def pictures(scratch: Path) -> list[str]:
    return sorted(p.name for p in scratch.rglob("*.png"))


ENDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "success": ((), "ok"),
    "error": (("exit:4",), "crashed"),
    "timeout": (("hang",), "deadline"),
}


def exec_plan(folder: Path, *faults: str) -> Plan:
    return attrs.evolve(
        plan_of(folder, [{"reply": "seen"}], *faults, shutdown=1.0, record=folder / "kept"),
        dialect=scripted_of(folder, *faults),
        launch=Launch(executable=(), mode="oneshot"),
    )


def scripted_of(folder: Path, *faults: str) -> Any:
    return scripted_dialect(folder / "script-0.ndjson", dialect="codex-exec", faults=faults)


@pytest.mark.covers("R146")
@pytest.mark.parametrize("end", ENDS)
async def test_temporary_files_are_gone_after_the_run(
    end: str, tmp_path: Path, own_temporary_directory: Path
) -> None:
    faults, outcome = ENDS[end]
    (tmp_path / "script-0.ndjson").write_text('{"reply": "seen"}\n')
    async with stream(exec_plan(tmp_path, *faults), "go", timeout=2.0, payloads=[PICTURE]) as live:
        async for _ in live:
            pass
    assert live.answer.outcome == outcome
    assert os.listdir(own_temporary_directory) == []


@pytest.mark.covers("R146")
async def test_temporary_files_are_there_while_it_runs_and_gone_when_it_is_cancelled(
    tmp_path: Path, own_temporary_directory: Path
) -> None:
    (tmp_path / "script-0.ndjson").write_text('{"reply": "seen"}\n')
    async with stream(exec_plan(tmp_path, "hang"), "go", payloads=[PICTURE]) as live:
        await anext(live)
        assert pictures(own_temporary_directory) == ["1-pixel.png"]
    assert os.listdir(own_temporary_directory) == []


@pytest.mark.covers("R146")
async def test_a_held_agent_with_a_process_for_each_request_keeps_no_files_between_them(
    tmp_path: Path, own_temporary_directory: Path
) -> None:
    (tmp_path / "script-0.ndjson").write_text('{"reply": "seen"}\n')
    async with proctor.open_supervisor([agent_spec("a", exec_plan(tmp_path), {})]) as sup:
        assert (await sup.agent("a").ask("go", payloads=[PICTURE])).text == "seen"
        async with sup.agent("a").events(0) as log:
            async for event in log:
                if isinstance(event, proctor.Exited):
                    break
        assert pictures(own_temporary_directory) == []
        assert (await sup.agent("a").ask("again")).text == "seen"
