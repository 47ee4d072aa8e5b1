"""`proctor serve --schema`: answers that a client hands in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from proctor.actors.errors import BadOption
from proctor.cli.submission_tools import SubmissionNotWritten, Submissions
from tests.proctor.command import environment, proctor
from tests.proctor.test_serve import text_of

INVOICE = {
    "title": "Invoice",
    "type": "object",
    "properties": {"number": {"type": "string"}, "total": {"type": "number", "minimum": 0}},
    "required": ["number", "total"],
    "additionalProperties": False,
}
GOOD = {"number": "A-1", "total": 12.5}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "invoice.json"
    path.write_text(json.dumps(INVOICE))
    return path


async def test_a_client_hands_in_answers_by_a_schema_of_the_command_line(
    schema: Path, home: Path, tmp_path: Path
) -> None:
    into = tmp_path / "answers.ndjson"
    words = ["-m", "proctor", "serve", "--schema", str(schema), "--submit-to", str(into)]
    parameters = StdioServerParameters(command="python", args=words, env=environment(home))
    import sys

    parameters.command = sys.executable
    async with Client(parameters) as client:
        listed = {each.name: each.input_schema for each in (await client.list_tools()).tools}
        assert sorted(listed) == ["example", "submit", "validate"]
        assert listed["submit"]["properties"] == INVOICE["properties"]

        async def call(name: str, **arguments: Any) -> tuple[bool | None, str]:
            result = await client.call_tool(name, arguments)
            return result.is_error, text_of(result)

        assert (await call("validate", **GOOD)) == (
            False,
            "The answer matches the schema. Submit it with `submit`.",
        )
        refused, why = await call("submit", number="A-1", total=-1)
        assert refused
        assert "/total" in why
        assert not into.read_bytes()
        example = json.loads((await call("example"))[1])
        for each in (GOOD, example):
            assert (await call("submit", **each))[0] is False
    assert [json.loads(line) for line in into.read_text().splitlines()] == [GOOD, example]
    assert into.stat().st_mode & 0o777 == 0o600


def test_an_answer_that_cannot_be_written_is_not_accepted_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "answers.ndjson"
    submissions = Submissions.opened(str(into))
    submissions.accept(GOOD)
    whole, write = into.read_bytes(), os.write

    def short(fd: int, data: bytes | memoryview) -> int:
        if len(data) < 5:
            raise OSError(28, "No space left on device")
        return write(fd, data[:5])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", short)
        with pytest.raises(SubmissionNotWritten, match="No space left on device; submit it again later"):
            submissions.accept({"number": "A-2", "total": 1})
    assert into.read_bytes() == whole
    submissions.accept(GOOD)
    assert into.read_bytes() == whole * 2
    submissions.close()


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("{}", (), "--schema and --submit-to must be used together"),
        ("{}", ("--submit-to", "/nowhere/at/all"), "'/nowhere/at/all' cannot be written"),
        ("[", ("--submit-to", "{}/a"), "is not JSON"),
        ("[" * 100_000, ("--submit-to", "{}/a"), "is not JSON"),
        ("[]", ("--submit-to", "{}/a"), "must hold a JSON schema"),
        ('{"type": "nothing"}', ("--submit-to", "{}/a"), "schema"),
    ],
)
def test_a_schema_that_cannot_be_served_is_one_line(
    text: str, words: tuple[str, ...], said: str, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(text)
    given = [word.replace("{}", str(tmp_path)) for word in words]
    ended = proctor("serve", "--schema", str(path), *given, home=home)
    assert ended.status == 2
    assert said in ended.complaint


def test_the_file_of_answers_must_be_one_that_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="Is a directory"):
        Submissions.opened(str(tmp_path))
