from __future__ import annotations

from proctor.protocols import vocabulary as v
from tests.protocols.opencode.server import BUSY, IDLE, answer, event, prompted, user
from tests.tables import each_row

PIECE = event("message.part.delta", messageID="a1", partID="a1x", field="text", delta="nev")
AGAIN = {"type": "retry", "attempt": 1, "message": "Connection reset by server", "next": 0}
RETRY = event("session.status", status=AGAIN)
OPEN = event("message.updated", info={"id": "a1", "role": "assistant"})
WHOLE = event(
    "message.part.updated",
    part={
        "messageID": "a1",
        "sessionID": "ses_1",
        "id": "a1b",
        "type": "text",
        "text": "let me see",
        "time": {"end": 1},
    },
)


@each_row("partial", [True, False])
@each_row(
    ("said", "whole"),
    [(PIECE, {}), (WHOLE, {"texts": 1}), (PIECE + WHOLE + PIECE, {"texts": 1})],
    ids=["piece", "block", "both"],
)
def test_what_a_call_of_the_model_had_said_before_it_broke_is_void(
    said: bytes, whole: dict[str, int], *, partial: bool
) -> None:
    talk = prompted("p1", partial=partial)
    events = talk.receive(user("u1") + BUSY + OPEN + said + RETRY + BUSY + answer("a1", "whole") + IDLE)
    (void,) = [e for e in events if isinstance(e, v.Notice)]
    assert (void.code, void.data) == ("attempt_void", {"message": "a1", "parent": None} | whole)
    (again,) = [e for e in events if isinstance(e, v.Retrying)]
    assert (again.attempt, again.error) == (1, "Connection reset by server")
    (end,) = [e for e in events if isinstance(e, v.TurnEnded)]
    assert end.text == "whole"


def test_a_step_that_is_finished_stays_when_the_next_call_breaks() -> None:
    talk = prompted("p1")
    first = user("u1") + BUSY + answer("a1", "first", "tool-calls")
    events = talk.receive(first + RETRY + RETRY + BUSY + answer("a2", "second") + IDLE)
    assert [e for e in events if isinstance(e, v.Notice)] == []
    assert [e.text for e in events if isinstance(e, v.Text)] == ["first", "second"]
    (end,) = [e for e in events if isinstance(e, v.TurnEnded)]
    assert end.text == "second"


def test_a_retry_in_a_session_that_a_tool_opened_voids_nothing_of_ours() -> None:
    talk = prompted("p1")
    child = event("session.created", "ses_child", info={"id": "ses_child", "parentID": "ses_1"})
    other = event("session.status", "ses_child", status=AGAIN)
    events = talk.receive(user("u1") + BUSY + OPEN + WHOLE + child + other + answer("a2", "whole") + IDLE)
    assert not [e for e in events if isinstance(e, (v.Notice, v.Retrying))]
