from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import proctor
from proctor.actors.agent.approval_queue import DIFF_LINES, Approval, ApprovalQueue, Approvals
from proctor.actors.plan.permissions import Verdict, decide
from proctor.protocols import vocabulary as v
from proctor.protocols.vocabulary import ApprovalRequested, Decision
from tests.actors.far_end import Step, agent_of

ASKING: Sequence[Step] = (
    {"tool": "Bash", "input": {"command": "x"}, "ask": True, "result": "ran {input}"},
    {"reply": "done"},
)


def question(id: str = "q1") -> ApprovalRequested:
    return ApprovalRequested(3, "1.1", id, "Bash", {"command": "touch x"}, "to touch it", "call-1")


async def first_of(desk: ApprovalQueue) -> Approval:
    return await anext(Approvals(desk))


async def test_an_answer_is_the_verdict_and_the_second_is_told_so(autojump_clock: MockClock) -> None:
    desk, verdicts = ApprovalQueue("a", 60.0), list[Verdict]()
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            verdicts.append(await desk.ask(question()))

        nursery.start_soon(ask)
        one, other = await first_of(desk), await first_of(desk)
        assert one is other
        assert (one.id, one.tool, one.description, one.tool_call) == ("q1", "Bash", "to touch it", "call-1")
        assert one.settled is None
        assert one.allow({"command": "true"})
        assert not other.deny("no")
        assert await other.wait() == "allowed"
    assert verdicts == [Verdict(True, input={"command": "true"})]


@pytest.mark.covers("L15", "L39")
async def test_unanswered_is_denied_at_the_deadline(autojump_clock: MockClock) -> None:
    desk = ApprovalQueue("a", 60.0)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        decisions = list[Decision]()

        async def ask() -> None:
            decisions.append(await decide(desk.ask, question(), deadline=60.0))

        nursery.start_soon(ask)
        approval = await first_of(desk)
        assert approval.deadline == began + 60
    assert decisions == [Decision("q1", False, "no answer within 60 s")]
    assert not approval.allow()
    assert approval.settled == "no answer within 60 s"


async def test_followers_see_what_is_open_and_pass_over_what_is_settled(autojump_clock: MockClock) -> None:
    desk, seen = ApprovalQueue("a", 60.0), list[str]()
    async with trio.open_nursery() as nursery:
        for name in ("q1", "q2", "q3"):
            nursery.start_soon(desk.ask, question(name))
            await trio.testing.wait_all_tasks_blocked()
        desk.withdraw("q2")
        follower = Approvals(desk)
        for _ in range(2):
            approval = await anext(follower)
            seen.append(approval.id)
            approval.deny()
        desk.close()
        with pytest.raises(StopAsyncIteration):
            await anext(follower)
    assert seen == ["q1", "q3"]


async def test_a_question_goes_with_its_process(autojump_clock: MockClock) -> None:
    desk = ApprovalQueue("a", 60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.ask, question())
        approval = await first_of(desk)
        nursery.cancel_scope.cancel("its process ended")
    assert (approval.settled, approval.deny()) == ("its process is gone", False)
    assert desk.after(0) is None


async def test_outside_of_a_tree_there_is_nobody_to_ask() -> None:
    assert await decide("ask", question()) == Decision("q1", False, "no approver is available")


@pytest.mark.parametrize(("allow", "end"), [(True, 'ran {"command":"y"}'), (False, "not today")])
async def test_a_person_decides_and_the_state_says_who_is_waited_for(
    allow: bool, end: str, tmp_path: Path
) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, ASKING, permission="ask")]) as sup:
        agent = sup.agent("a")
        async with agent.stream("go") as turn, agent.approvals() as approvals:
            approval = await anext(approvals)
            status = await agent.status()
            assert approval.allow({"command": "y"}) if allow else approval.deny("not today")
            results = [event.text async for event in turn if isinstance(event, v.ToolResult)]
        after = await agent.status()
    assert (status.state, status.evidence) == ("blocked", "Bash wants to run")
    assert (results, after.state) == ([end], "idle")


@pytest.mark.covers("L39")
async def test_nobody_there_is_a_denial_and_the_turn_goes_on(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, ASKING, permission="ask", approval_deadline=0.3)
    async with proctor.open_supervisor([spec]) as sup:
        answer = await sup.agent("a").ask("go")
    assert (answer.outcome, answer.denied_tools) == ("ok", ("Bash",))


async def test_an_interrupt_takes_the_question_back(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, ASKING, permission="ask")]) as sup:
        agent = sup.agent("a")
        async with agent.stream("go") as turn, agent.approvals() as approvals:
            approval = await anext(approvals)
            assert await agent.interrupt()
            assert await approval.wait() == "the CLI withdrew the question"
            assert (await turn.finish()).outcome == "interrupted"
        assert (await agent.status()).state == "idle"


async def test_followers_end_when_the_agent_is_at_rest(tmp_path: Path) -> None:
    spec = agent_of(tmp_path, ASKING, permission="ask")
    async with proctor.open_supervisor([spec]) as sup, sup.agent("a").approvals() as approvals:
        await sup.terminate_child("a")
        with trio.fail_after(30):
            assert [approval async for approval in approvals] == []


async def test_an_agent_whose_policy_answers_has_no_open_questions(tmp_path: Path) -> None:
    async with proctor.open_supervisor([agent_of(tmp_path, ASKING, permission="allow")]) as sup:
        with pytest.raises(proctor.BadOption, match="a has no approvals: its permission is not 'ask'"):
            async with sup.agent("a").approvals():
                pass


# -- what is remembered, put off, and shown


async def verdict_on(
    desk: ApprovalQueue, one: ApprovalRequested, decide_it: Callable[[Approval], object]
) -> Verdict:
    """The verdict on a question that is decided as soon as it is open; one that never opens is not decided."""
    verdicts: list[Verdict] = []

    async def ask() -> None:
        verdicts.append(await desk.ask(one))
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        decide_it(await first_of(desk))
        await trio.sleep_forever()
    return verdicts[0]


async def test_what_a_cli_cannot_remember_is_remembered_for_the_same_tool_of_the_session() -> None:
    desk = ApprovalQueue("a", 60.0)
    other = ApprovalRequested(3, "1.1", "q2", "Read")
    assert await verdict_on(desk, question(), lambda one: one.allow(always=True)) == Verdict(
        True, always=True
    )
    assert await desk.ask(question("q3")) == Verdict(True)
    assert not (await verdict_on(desk, other, Approval.deny)).allow
    desk.forget()
    assert not (await verdict_on(desk, question("q4"), Approval.deny)).allow


async def test_what_a_cli_remembers_itself_is_asked_again_when_it_asks_again() -> None:
    desk = ApprovalQueue("a", 60.0)
    lasting = ApprovalRequested(3, "1.1", "q1", "Bash", lasting=True)
    assert (await verdict_on(desk, lasting, lambda one: one.allow(always=True))).always
    assert not (await verdict_on(desk, lasting, Approval.deny)).allow


async def test_a_deadline_that_is_put_off_counts_from_then_on(autojump_clock: MockClock) -> None:
    desk = ApprovalQueue("a", 60.0)
    began = trio.current_time()
    verdict = await verdict_on(desk, question(), lambda one: one.extend(600.0))
    assert (trio.current_time() - began, verdict.allow) == (600.0, False)
    assert verdict.message == "no answer within 600 s"


async def test_a_deadline_is_drawn_nearer_too_and_not_after_the_end(autojump_clock: MockClock) -> None:
    desk, began = ApprovalQueue("a", 60.0), trio.current_time()
    seen: list[Approval] = []

    def shorten(one: Approval) -> None:
        seen.append(one)
        assert one.extend(5.0)

    await verdict_on(desk, question(), shorten)
    assert trio.current_time() - began == 5.0
    assert not seen[0].extend(60.0)


MENU = {
    "questions": [
        {"question": "Which?", "options": [{"label": "A", "description": "the first"}], "multiSelect": True},
        {"question": "Why?", "options": []},
    ]
}


async def test_the_questions_of_a_tool_are_answered_in_their_order() -> None:
    desk = ApprovalQueue("a", 60.0)
    asks = ApprovalRequested(3, "1.1", "q1", "AskUserQuestion", MENU)

    def answer(one: Approval) -> None:
        assert one.choices == ("allow", "deny")
        assert [each.question for each in one.questions] == ["Which?", "Why?"]
        with pytest.raises(proctor.BadOption, match="1 answers for 2 questions"):
            one.answer("A")
        with pytest.raises(proctor.BadOption, match="for always"):
            one.allow(always=True)
        assert one.answer("A, B", "because")

    verdict = await verdict_on(desk, asks, answer)
    assert verdict.input == {**MENU, "answers": {"Which?": "A, B", "Why?": "because"}}


async def test_several_answers_to_one_question_are_joined_and_an_option_is_named() -> None:
    desk = ApprovalQueue("a", 60.0)
    single = {"questions": MENU["questions"][:1]}
    asks = ApprovalRequested(3, "1.1", "q1", "AskUserQuestion", single)
    verdict = await verdict_on(desk, asks, lambda one: one.answer("A", "B"))
    assert verdict.input == {**single, "answers": {"Which?": "A, B"}}
    plan = ApprovalRequested(3, "1.1", "q2", "plan", description="Go on?", options=("Yes", "No"))
    assert await verdict_on(desk, plan, lambda one: one.answer("No")) == Verdict(True, option="No")


async def test_an_approval_has_the_diff_of_what_it_would_write(tmp_path: Path) -> None:
    desk = ApprovalQueue("a", 60.0)
    desk.folder = tmp_path
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    diffs: list[str | None] = []

    def keep(one: Approval) -> None:
        diffs.append(one.diff)
        one.deny()

    whole = "".join(f"{number}\n" for number in range(500))
    for tool, call in (
        ("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "three"}),
        ("Write", {"file_path": "a.txt", "content": whole}),
        ("Bash", {"command": "x"}),
    ):
        await verdict_on(desk, ApprovalRequested(3, "1.1", "q", tool, call), keep)
    edit, write, none = diffs
    assert edit == "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three"
    assert write is not None
    assert (len(write.splitlines()), write.splitlines()[-1]) == (DIFF_LINES + 1, "… and 305 more lines")
    assert none is None
    shown = ({"type": "diff", "path": "b", "oldText": None, "newText": "x\n"},)
    await verdict_on(desk, ApprovalRequested(3, "1.1", "q", "edit", changes=shown), keep)
    assert diffs[-1] == "--- b\n+++ b\n@@ -0,0 +1 @@\n+x"
