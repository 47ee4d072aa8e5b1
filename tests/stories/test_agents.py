from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import proctor
from proctor.protocols import vocabulary as v
from tests.actors.far_end import Step, codes, log_of, silent
from tests.stories.agents import LIMIT, RESUMING, RUNS, SESSIONS, child
from tests.stories.rows import ROWS


@pytest.mark.covers("R189")
@pytest.mark.parametrize("dialect", SESSIONS)
async def test_an_agent_answers_turn_after_turn_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    children = child(tmp_path, dialect, [{"reply": "{turn}: {prompt}"}])
    async with proctor.open_supervisor(children) as sup:
        answers = [await sup.agent("a").ask(prompt, timeout=LIMIT) for prompt in ("one", "two")]
    assert [(a.outcome, a.text) for a in answers] == [("ok", "1: one"), ("ok", "2: two")]
    assert len({a.session_id for a in answers}) == 1


@pytest.mark.parametrize("permission", ["allow", "deny"])
@pytest.mark.parametrize("dialect", SESSIONS)
async def test_a_question_is_answered_by_the_policy_in_every_dialect(
    tmp_path: Path, dialect: str, permission: str
) -> None:
    asked = {"tool": "Bash", "run": "touch made", "ask": True}
    children = child(tmp_path, dialect, [asked, {"reply": "fine"}], permission=permission, cwd=tmp_path)
    async with proctor.open_supervisor(children) as sup:
        answer = await sup.agent("a").ask("go", timeout=LIMIT)
    assert (tmp_path / "made").exists() == (permission == "allow")
    goes_on = permission == "allow" or "goes on when refused" in ROWS[dialect].words
    assert (answer.text == "fine") == goes_on


@pytest.mark.parametrize("dialect", SESSIONS)
async def test_a_question_that_nobody_answers_is_denied_in_every_dialect(
    tmp_path: Path, dialect: str
) -> None:
    asked = {"tool": "Bash", "run": "touch made", "ask": True}
    options = {"permission": silent, "approval_deadline": 0.2, "cwd": tmp_path}
    async with proctor.open_supervisor(
        child(tmp_path, dialect, [asked, {"reply": "fine"}], **options)
    ) as sup:
        await sup.agent("a").ask("go", timeout=LIMIT)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("dialect", SESSIONS)
async def test_a_deadline_interrupts_the_turn_and_keeps_the_process_in_every_dialect(
    tmp_path: Path, dialect: str
) -> None:
    script: Sequence[Step] = (
        {"say": "begun"},
        {"sleep": 60},
        {"reply": "no"},
        {"turn": "2"},
        {"reply": "next"},
    )
    async with proctor.open_supervisor(child(tmp_path, dialect, script)) as sup:
        with pytest.raises(proctor.AskTimeout):
            await sup.agent("a").ask("one", timeout=0.5)
        answer = await sup.agent("a").ask("two", timeout=LIMIT)
        status = await sup.agent("a").status()
    assert (answer.text, status.incarnation) == ("next", 1)


@pytest.mark.parametrize("dialect", RESUMING)
async def test_a_conversation_goes_on_after_a_death_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    script: Sequence[Step] = (
        {"turn": "after", "incarnation": 2},
        {"reply": "{turn}: {prompt}"},
        {"turn": "before"},
        {"say": "begun"},
        {"fault": "crash@once"},
        {"reply": "no"},
    )
    children = child(tmp_path, dialect, script, on_crash="retry")
    async with proctor.open_supervisor(children) as sup, sup.agent("a").stream("one") as turn:
        with trio.fail_after(LIMIT):
            events = [event async for event in turn]
    assert turn.answer.text == "2: one"
    assert len({e.session_id for e in events if isinstance(e, v.Started)}) == 1
    assert "resumed" in codes(events)


@pytest.mark.parametrize("dialect", RESUMING)
async def test_a_refused_resume_ends_in_a_fresh_session_in_every_dialect(
    tmp_path: Path, dialect: str
) -> None:
    unknown = "3c9b9a52-44a1-4d64-9a84-ff86a2cbb2a7"
    children = child(tmp_path, dialect, [{"reply": "{prompt}"}], resume=unknown)
    async with proctor.open_supervisor(children) as sup:
        answer = await sup.agent("a").ask("hi", timeout=LIMIT)
        refused = codes(await log_of(sup.agent("a"))).count("resume_refused")
    assert (answer.outcome, answer.text) == ("ok", "hi")
    assert answer.session_id != unknown
    assert refused in (1, 2)


@pytest.mark.parametrize("dialect", RUNS)
async def test_a_run_answers_once_and_leaves_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    [spec] = child(tmp_path, dialect, [{"reply": "you said {prompt}"}])
    answer = await proctor.ask(spec, "hi", timeout=LIMIT)
    assert (answer.outcome, answer.text) == ("ok", "you said hi")


@pytest.mark.parametrize("dialect", RUNS)
async def test_a_run_that_dies_is_no_answer_in_any_dialect(tmp_path: Path, dialect: str) -> None:
    [spec] = child(tmp_path, dialect, [{"say": "begun"}, {"fault": "crash"}])
    answer = await proctor.ask(spec, "hi", timeout=LIMIT)
    assert not answer.ok
