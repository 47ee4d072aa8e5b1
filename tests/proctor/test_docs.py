"""The examples of the documentation: commands parse, fleet files load, programs run on scripted agents."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.actors.fleet.fleet import load_fleet
from proctor.actors.scripted.launch import PROGRAM
from proctor.cli.app import VALUED, build_app
from proctor.cli.prompts import separate_prompt
from proctor.cli.verb_parser import parser_of
from proctor.cli.verbs import VERBS
from tests.proctor.command import python_process
from tests.runtime.programs import installed

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")))
STAND_INS = {
    "PROCTOR_CLAUDE": "claude",
    "PROCTOR_CODEX": "codex",
    "PROCTOR_OPENCODE": "opencode",
    "PROCTOR_GEMINI": "gemini",
}
HELLO = '{"reply": "Hello! You said: {prompt}", "cost": 0.01}\n'
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return [code for named, code in FENCE.findall(text_of(page)) if named == language]


def commands(page: str) -> Iterator[str]:
    """The command lines of proctor on a page, without redirections and comments."""
    text = text_of(page)
    fenced = [code for named, code in FENCE.findall(text) if named in ("", "console")]
    indented = re.findall(r"^    .*$", FENCE.sub("", text), re.MULTILINE)
    for line in "\n".join([*fenced, *indented]).splitlines():
        match = re.search(r"(?:^\s*(?:\$ )?|\| |^\s*\w+=\S+ )(proctor(?: [^#|<]*)?)(?: #.*|[|<].*)?$", line)
        if match:
            yield match[1].strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for examples, with a scripted agent in place of each command line."""
    script = tmp_path / "hello.ndjson"
    script.write_text(HELLO)
    for variable, dialect in STAND_INS.items():
        words = f"{sys.executable} -I -S {PROGRAM} --script={script} --dialect={dialect}"
        monkeypatch.setenv(variable, str(installed(tmp_path / "bin" / dialect, f'exec {words} "$@"')))
    for name in ("repo", "docs", "work/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "fixer.ndjson").write_text(HELLO)
    (tmp_path / "README.md").write_text("A supervisor for agents.\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    for variable in ("TICKETS_TOKEN", "SEARCH_KEY"):
        monkeypatch.setenv(variable, "secret")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if [*commands(page)]])
def test_the_commands_of_a_page_have_only_options_that_exist(page: str) -> None:
    app = build_app()
    for command in commands(page):
        words = shlex.split(command)[1:]
        if words[:1] == ["run"]:
            words = separate_prompt(words, VALUED)
        if words[:1] and words[0] in VERBS:
            parser_of(words[0]).parse_args(words[1:])
        else:
            app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")])
def test_the_fleet_files_of_a_page_load(page: str, folder: Path) -> None:
    for code in blocks(page, "toml"):
        path = folder / "fleet.toml"
        path.write_text(code)
        for script in re.findall(r'^script = "(.*)"', code, re.MULTILINE):
            (folder / script).write_text(HELLO)
        for prompt in re.findall(r'^prompt_file = "(.*)"', code, re.MULTILINE):
            (folder / prompt).write_text("Look.")
        fleet = load_fleet(path)
        assert [*fleet.members(fleet.name)] != []


def saved(page: str) -> Iterator[tuple[str, str]]:
    """The files that the reader of a tutorial saves: name and content."""
    yield from re.findall(
        r"\bas `([\w.]+)`[^`]*?:\n\n```\w+\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE
    )


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("tutorial", "files", "lines"),
    [
        (
            "first-fleet",
            ["hello.ndjson", "crash.ndjson", "fleet.toml"],
            ["There is one file.", "The work is done now."],
        ),
        ("embed-in-a-daemon", ["worker.ndjson", "daemon.py"], []),
        (
            "compare-three-clis",
            ["tasks.jsonl"],
            [
                "agent     attempts  score  95 %",
                "claude    6         0.333",
                "codex     6 ",
                "opencode  6 ",
                "base    other",
            ],
        ),
    ],
)
def test_a_tutorial_runs_as_it_stands(
    tutorial: str, files: list[str], lines: list[str], folder: Path
) -> None:
    page = f"docs/tutorials/{tutorial}.md"
    for name, code in saved(page):
        (folder / name).write_text(code)
    assert [name for name, _ in saved(page)] == files
    typed = re.findall(r"^    ((?:python|proctor (?:run|up|bench)) .*)$", text_of(page), re.MULTILINE)
    assert typed != []
    out = ""
    for line in typed:
        program, *rest = shlex.split(line)
        done = run([sys.executable, *(["-m", "proctor"] if program == "proctor" else []), *rest])
        assert done.returncode == 0, done.stderr
        out += done.stdout
    shown = lines if lines else [line for code in blocks(page, "") for line in code.splitlines()]
    assert [line for line in shown if line not in out] == []


SETTING = """
import ast, inspect, json, shlex, sys
from functools import partial

import attrs
import msgspec
import trio

import proctor
from proctor.runtime import Command

token = key = "secret"
notes, prompt, id = "It supervises.", "Say hello.", "user-17"
fixer = proctor.claude("fixer")
specs = [proctor.scripted("reader", "hello.ndjson")]
fleet = [proctor.scripted("reviewer", "hello.ndjson")]
pools = proctor.Pools(limit=2)
bill = proctor.FilePayload("bill.txt", b"One pen.")
request = proctor.CompletionRequest(prompt="Say hello.")


class Invoice(msgspec.Struct):
    number: str


def ssh_variables():
    return {}


async def my_api(text):
    return "Hello."


async def my_stream(text, tools):
    yield "Hello."


@proctor.tool
async def my_tool(word: str) -> str:
    "Repeat a word."
    return word


async def sweep(): ...


async def report(): ...


async def run_blocks(blocks, setting):
    for block in blocks:
        code = compile(block, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, dict(setting))
        if inspect.iscoroutine(made):
            await made


async def main(blocks, endless):
    reviewer = proctor.scripted("reviewer", sys.argv[2], permission="ask", schemas=True)
    async with proctor.open_supervisor([reviewer]) as sup, proctor.Sessions("held") as sessions:
        agent = sup.agent("reviewer")
        setting = {**globals(), "sup": sup, "agent": agent, "sessions": sessions}
        async with trio.open_nursery() as nursery:
            if endless:
                nursery.start_soon(run_blocks, blocks, setting)
                answer = await agent.ask("Go on.")
                assert answer.ok, answer
            else:
                await run_blocks(blocks, setting)
            nursery.cancel_scope.cancel()


trio.run(main, json.loads(sys.stdin.read()), sys.argv[1] == "endless")
"""
"""What the programs of a page may refer to: an agent of a tree, sessions, pools, a function or a value of the reader's."""

ASKS = '{"tool": "Bash", "input": {"command": "rm x"}, "ask": true, "result": "done"}\n' + HELLO
"""A script of an agent whose tool waits for a decision."""

OTHERWISE = {
    "README.md": "its program runs as it stands: the next test",
    "docs/explanation/supervision.md": "test_examples",
    "docs/explanation/messages.md": "test_examples",
    "docs/guides/dynamic-children.md": "test_examples",
    "docs/guides/run-programs.md": "test_examples",
    "docs/explanation/semantics.md": "test_semantics_page",
    "docs/tutorials/embed-in-a-daemon.md": "the test of tutorials",
    "docs/tutorials/fastapi-service.md": "a service: tests/faces/test_tutorials.py",
    "docs/tutorials/notebook.md": "the cells of a notebook: tests/faces/test_tutorials.py",
    "docs/guides/use-with-asyncio.md": "programs of asyncio: tests/faces/test_guides.py",
    "docs/guides/use-in-scripts.md": "plain programs: tests/faces/test_guides.py",
    "docs/guides/testing.md": "needs pytest: test_fixtures",
    "docs/guides/evaluate-agents.md": "needs Inspect: tests/harnesses",
    "docs/reference/trajectories.md": "needs the folder of a run: tests/actors/test_trajectories.py",
    "docs/guides/share-an-opencode-server.md": "needs a server of OpenCode: tests/real/test_opencode_serve.py",
    "docs/guides/chat-api.md": "a client of a server that runs: tests/actors/gateways/openai",
    "docs/guides/serve-over-http.md": "serves without end: tests/actors/gateways/http",
    "docs/guides/serve-over-mcp.md": "serves stdin without end: tests/actors/test_mcp_server.py",
    "docs/reference/scripts.md": "refers to the checkout: tests/actors/scripted",
}
"""Page whose programs are not run here → where they are run, or what is in the way."""
PROGRAMS = [page for page in PAGES if blocks(page, "python") and page not in OTHERWISE]


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_programs_of_a_page_run_on_scripted_agents(page: str, folder: Path) -> None:
    endless = page.endswith("approvals.md")
    (folder / "asks.ndjson").write_text(ASKS)
    (folder / "hello").write_text(HELLO)
    (folder / "fleet.toml").write_text(blocks("docs/reference/fleet-file.md", "toml")[0])
    words = ["endless", "asks.ndjson"] if endless else ["once", "hello.ndjson"]
    done = python_process(SETTING, *words, stdin=json.dumps(blocks(page, "python")).encode())
    assert done.status == 0, done.err


def test_the_program_of_the_readme_runs_on_scripted_agents(folder: Path) -> None:
    [code] = blocks("README.md", "python")
    done = python_process(code)
    assert done.status == 0, done.err
    assert done.out.startswith("ok Hello! You said: Review the last commit.")
