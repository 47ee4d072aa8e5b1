"""The descriptors 0 and 1 while a server has them: the process is the subject."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.mcp_client import INITIALIZE, READY, calls, written
from tests.proctor.command import PATIENCE, environment

PROGRAM = """
import os, subprocess, sys
import trio
from proctor.actors.gateways.mcp.server import ToolsetServer
from proctor.actors.tools.tools import tool
from proctor.actors.serving.toolset import Toolset

@tool
async def prints() -> str:
    print("printed")
    os.write(1, b"written\\n")
    subprocess.run(["echo", "echoed"])
    return repr(sys.stdin.read())

trio.run(ToolsetServer("things", Toolset([prints])).serve_stdio)
print("given back")
"""


@pytest.mark.covers("R159", "R178")
@pytest.mark.parametrize("kind", ["pipes", "files"])
def test_stdout_is_the_protocols_alone_and_whoever_prints_is_heard_on_stderr(
    kind: str, tmp_path: Path
) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_bytes(written(INITIALIZE, READY, calls(1, "prints")))
    command, env = [sys.executable, "-c", PROGRAM], environment(tmp_path)
    if kind == "pipes":
        with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=env) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(asked.read_bytes())
            process.stdin.flush()
            out = process.stdout.readline() + process.stdout.readline()
            rest, err = process.communicate(timeout=PATIENCE)
            status, lines = process.returncode, (out + rest).splitlines()
        said = {b"printed", b"written", b"echoed"}
        assert json.loads(lines[1])["result"]["content"][0]["text"] == "''"
    else:
        with asked.open() as given, answered.open("w") as taken:
            done = subprocess.run(
                command, stdin=given, stdout=taken, stderr=-1, env=env, timeout=PATIENCE, check=False
            )
        status, err, lines, said = (
            done.returncode,
            done.stderr,
            answered.read_bytes().splitlines(),
            set[bytes](),
        )
    assert (status, lines[-1]) == (0, b"given back")
    assert [json.loads(line)["id"] for line in lines[:-1]] == [0, 1]
    assert said <= set(err.splitlines())
