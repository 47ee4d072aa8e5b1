from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.proctor.command import EXAMPLES, Terminal, proctor, wait_recorded
from tests.proctor.scripts import Script

ASKS = (
    '{"tool": "Bash", "input": {"command": "rm x"}, "ask": true, "result": "gone"}',
    '{"reply": "done"}',
)


@pytest.mark.parametrize(
    ("typed", "verdict"),
    [
        ("y\n", "Bash allowed"),
        ("YES\n", "Bash allowed"),
        ("n\n", "Bash denied: denied at the terminal"),
        ("\n", "Bash denied: denied at the terminal"),
        ("\x04", "Bash denied: denied at the terminal"),
    ],
    ids=["y", "yes", "n", "enter", "end"],
)
def test_an_approval_is_asked_at_the_terminal(home: Path, script: Script, typed: str, verdict: str) -> None:
    with Terminal(["run", script(*ASKS), "hi"], home) as terminal:
        terminal.until("Bash: rm x — allow? [y/N, ")
        terminal.press(typed)
        assert terminal.end() == 0
        assert verdict in terminal.shown


def test_what_was_typed_before_the_question_does_not_answer_it(home: Path, script: Script) -> None:
    with Terminal(["run", script('{"say": "wait"}', '{"sleep": 1}', *ASKS), "hi"], home) as terminal:
        terminal.until("wait")
        terminal.press("y\n")
        terminal.until("allow? [y/N, ")
        terminal.press("n\n")
        assert terminal.end() == 0
        assert "Bash denied" in terminal.shown


def test_two_questions_are_asked_one_after_the_other(home: Path, script: Script) -> None:
    with Terminal(["run", script(ASKS[0], ASKS[0].replace("rm x", "rm y"), ASKS[1]), "hi"], home) as terminal:
        terminal.until("rm x — allow? [y/N, ")
        terminal.press("y\n")
        terminal.until("rm y — allow? [y/N, ")
        terminal.press("n\n")
        assert terminal.end() == 0


def test_a_command_cannot_hide_itself_from_the_one_who_approves_it(home: Path, script: Script) -> None:
    hidden = '{"tool": "Bash", "input": {"command": "rm -rf x\\u001b[2K\\rls"}, "ask": true, "result": "x"}'
    with Terminal(["run", script(hidden, ASKS[1]), "hi"], home) as terminal:
        terminal.until("Bash: rm -rf x\\x1b[2K ls — allow? [y/N, ")
        terminal.press("n\n")
        assert terminal.end() == 0


def test_a_policy_that_is_named_is_not_asked(home: Path, script: Script) -> None:
    with Terminal(["run", script(*ASKS), "hi", "--permission=deny"], home) as terminal:
        assert terminal.end() == 0
        assert "allow?" not in terminal.shown
        assert "Bash denied" in terminal.shown


def test_ctrl_c_at_a_question_stops_the_run(home: Path, script: Script) -> None:
    with Terminal(["run", script(*ASKS), "hi"], home) as terminal:
        terminal.until("allow? [y/N, ")
        terminal.press("\x03")
        assert terminal.end() == 130


def test_an_escape_in_an_answer_is_shown_to_a_terminal_and_not_obeyed(home: Path, script: Script) -> None:
    with Terminal(["run", script('{"reply": "a\\u001b[31mb"}'), "hi"], home) as terminal:
        assert terminal.end() == 0
        assert "a\\x1b[31mb" in terminal.shown


def test_a_note_does_not_land_in_the_middle_of_a_line(home: Path, script: Script) -> None:
    agent = script(
        '{"say": "half a line", "deltas": 2}',
        '{"tool": "Read", "input": {"file_path": "x"}, "result": "y"}',
        '{"reply": "end"}',
    )
    with Terminal(["run", agent, "hi"], home) as terminal:
        assert terminal.end() == 0
        assert "half a line\r\n\x1b[2mRead: x\x1b[0m\r\nend\r\n" in terminal.shown


def test_no_prompt_at_a_terminal_is_one_line_that_says_how(home: Path, script: Script) -> None:
    with Terminal(["run", script(*ASKS)], home) as terminal:
        assert terminal.end() == 2
        assert "no prompt: give one after the agent, or - to type it here" in terminal.shown


def test_a_prompt_can_be_typed(home: Path, script: Script) -> None:
    with Terminal(["run", script('{"reply": "{prompt}!"}'), "-"], home) as terminal:
        terminal.press("hello\n\x04")
        assert terminal.end() == 0
        assert "hello\n!" in terminal.shown.replace("\r", "")


def test_ctrl_c_while_a_prompt_is_typed_ends_the_command(home: Path, script: Script) -> None:
    with Terminal(["run", script(*ASKS), "-"], home) as terminal:
        terminal.press("hel")
        terminal.until("hel")
        while len(list(Path(f"/proc/{terminal.process.pid}/task").iterdir())) < 2:
            time.sleep(0.02)  # until a thread of the command's reads the terminal
        terminal.press("\x03")
        assert terminal.end() == 130


def test_the_live_view_shows_the_table_and_gives_the_terminal_back(home: Path) -> None:
    with Terminal(["up", str(EXAMPLES / "demo.toml")], home) as terminal:
        terminal.until("\x1b[?1049h")
        terminal.until("parked")
        assert terminal.end() == 0
        picture, _, after = terminal.shown.rpartition("\x1b[?1049l")
        for word in ("last words", "phoenix", "(1 restart)", "working", "Ctrl-C stops the fleet", "asked: "):
            assert word in picture
        assert "killed by SIGKILL in mid-turn" in after
        assert "agent    result" in after


def test_ctrl_c_in_the_live_view_stops_the_fleet_and_tells_what_happened(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"reply": "x"}\n')
    (tmp_path / "f.toml").write_text('[[agents]]\nkind = "scripted"\nname = "a"\nscript = "a.ndjson"\n')
    with Terminal(["up", str(tmp_path / "f.toml")], home) as terminal:
        terminal.until("idle")
        terminal.press("\x03")
        assert terminal.end() == 130
        assert terminal.shown.rpartition("\x1b[?1049l")[2].count("stopped") >= 1


def test_a_terminal_that_stops_reading_does_not_stop_the_fleet(home: Path) -> None:
    with Terminal(["up", str(EXAMPLES / "demo.toml")], home) as terminal:
        terminal.until("reader")
        terminal.press("\x13")  # Ctrl-S
        runs = home / "state" / "proctor" / "runs"
        wait_recorded(runs, "*sleeper*/1/meta.json")
        terminal.press("\x11")  # Ctrl-Q
        assert terminal.end() == 0


def test_a_terminal_that_goes_away_ends_the_fleet(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"reply": "x"}\n')
    (tmp_path / "f.toml").write_text('[[agents]]\nkind = "scripted"\nname = "a"\nscript = "a.ndjson"\n')
    with Terminal(["up", str(tmp_path / "f.toml")], home) as terminal:
        terminal.until("idle")
        fd, terminal.fd = terminal.fd, os.open(os.devnull, os.O_RDONLY)
        os.close(fd)
        assert terminal.process.wait(30) in (129, 141)


def test_a_file_is_approved_with_what_changes_in_view(home: Path, script: Script, tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("roses are red\nviolets are blue\nthe end\n")
    edit = {
        "file_path": "poem.txt",
        "old_string": "violets are blue",
        "new_string": "violets\x1b[2K are violet",
    }
    write = {"file_path": str(tmp_path / "new.txt"), "content": "one\ntwo\n"}
    agent = script(
        json.dumps({"tool": "Edit", "input": edit, "ask": True, "result": "edited"}),
        json.dumps({"tool": "Write", "input": write, "ask": True, "result": "written"}),
        '{"reply": "done"}',
    )
    with Terminal(["run", agent, "hi", f"--cwd={tmp_path}"], home) as terminal:
        shown = terminal.until("Edit: poem.txt — allow? [y/N, ")
        assert "\x1b[31m-violets are blue\x1b[0m\r\n\x1b[32m+violets\\x1b[2K are violet\x1b[0m\r\n" in shown
        assert " roses are red" in shown
        terminal.press("y\n")
        shown = terminal.until("new.txt — allow? [y/N, ")
        assert "\x1b[32m+one\x1b[0m\r\n\x1b[32m+two\x1b[0m\r\n" in shown
        terminal.press("n\n")
        assert terminal.end() == 0


def test_always_allows_a_tool_for_the_rest_of_the_run_by_a_rule_that_is_shown(
    home: Path, script: Script
) -> None:
    other = '{"tool": "Read", "input": {"file_path": "y"}, "ask": true, "result": "y"}'
    with Terminal(
        ["run", script(ASKS[0], ASKS[0].replace("rm x", "rm z"), other, ASKS[1]), "hi"], home
    ) as terminal:
        terminal.until("rm x — allow? [y/N, ")
        terminal.press("a\n")
        shown = terminal.until("Read: y — allow? [y/N, ")
        assert "rm z — allow?" not in shown
        terminal.press("n\n")
        assert terminal.end() == 0
        assert "proctor: from now on in this run: --allow Bash\r\n" in terminal.shown
        assert terminal.shown.count("Bash allowed") == 2


def test_a_tool_whose_name_is_a_pattern_is_allowed_alone(home: Path, script: Script) -> None:
    star = '{"tool": "*", "input": {"command": "one"}, "ask": true, "result": "x"}'
    with Terminal(["run", script(star, *ASKS), "hi"], home) as terminal:
        terminal.until("*: one — allow? [y/N, ")
        terminal.press("a\n")
        terminal.until("Bash: rm x — allow? [y/N, ")
        terminal.press("\n")
        assert terminal.end() == 0
        assert "--allow [*]\r\n" in terminal.shown


def test_a_reason_typed_at_the_terminal_goes_with_the_denial(home: Path, script: Script) -> None:
    with Terminal(["run", script(*ASKS), "hi"], home) as terminal:
        terminal.until("allow? [y/N, ")
        terminal.press("d\n")
        terminal.until("why? ")
        terminal.press("Not on a Friday\n")
        assert terminal.end() == 0
        assert "Bash denied: denied at the terminal: Not on a Friday" in terminal.shown


MENU = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "options": [{"label": "red", "description": "like fire"}, {"label": "blue", "description": ""}],
            "multiSelect": False,
        },
        {
            "question": "Which sizes?",
            "header": "Sizes",
            "options": [{"label": "S"}, {"label": "M"}, {"label": "L"}],
            "multiSelect": True,
        },
    ]
}
ASKS_USER = json.dumps({"tool": "AskUserQuestion", "input": MENU, "ask": True, "result": "You said {input}"})


def test_a_question_to_the_user_is_a_menu_whose_answer_reaches_the_tool(home: Path, script: Script) -> None:
    agent = script(ASKS_USER, '{"reply": "done"}')
    with Terminal(["run", agent, "hi", "--json", "--allow=*"], home) as terminal:
        shown = terminal.until("a number, or an answer of your own: ")
        assert "Colour: Which colour?\r\n  1. red: like fire\r\n  2. blue\r\n" in shown
        terminal.press("2\n")
        terminal.until("numbers with commas, or an answer of your own: ")
        terminal.press("1, 3\n")
        assert terminal.end() == 0
        assert (
            '\\"answers\\":{\\"Which colour?\\":\\"blue\\",\\"Which sizes?\\":\\"S, L\\"}' in terminal.shown
        )


def test_an_answer_of_ones_own_is_taken_and_nothing_typed_denies(home: Path, script: Script) -> None:
    with Terminal(
        ["run", script(ASKS_USER, ASKS_USER, '{"reply": "done"}'), "hi", "--json"], home
    ) as terminal:
        terminal.until("own: ")
        terminal.press("7\n")
        terminal.until("commas, or an answer of your own: ")
        terminal.press("none of them\n")
        terminal.until("a number, or an answer of your own: ")
        terminal.press("\n")
        assert terminal.end() == 0
        assert '\\"Which colour?\\":\\"7\\",\\"Which sizes?\\":\\"none of them\\"' in terminal.shown
        assert "nothing was chosen at the terminal" in terminal.shown


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (("--allow=Ba*",), "Bash allowed"),
        (("--allow=*", "--deny=Bash"), "Bash denied"),
        (("--deny=Bash", "--permission=allow"), "Bash denied"),
        (("--deny=Read", "--permission=allow"), "Bash allowed"),
        (("--allow=Read", "--permission=deny"), "Bash denied"),
    ],
)
def test_rules_of_the_command_line_decide_before_anybody_is_asked(
    home: Path, script: Script, words: tuple[str, ...], verdict: str
) -> None:
    with Terminal(["run", script(*ASKS), "hi", *words], home) as terminal:
        assert terminal.end() == 0
        assert verdict in terminal.shown
        assert "allow? [" not in terminal.shown


def test_what_no_rule_names_is_denied_where_nobody_can_be_asked(home: Path, script: Script) -> None:
    done = proctor("run", script(*ASKS), "hi", "--allow=Read", home=home)
    assert (done.status, "Bash denied" in done.err) == (0, True)
    done = proctor("run", script(*ASKS), "hi", "--allow=Bash", home=home)
    assert (done.status, "Bash allowed" in done.err) == (0, True)


def test_a_rule_without_a_tool_is_refused(home: Path, script: Script) -> None:
    done = proctor("run", script(*ASKS), "hi", "--deny=", home=home)
    assert done.status == 2
    assert done.complaint == "proctor: --deny must be the name of a tool, or a glob such as 'mcp__*', got ''"
