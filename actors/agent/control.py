"""What is said to a CLI beside its prompts: written, or refused with a reason before anything is (L40).

Not here: what becomes of it once it is written (`receipts`).
"""

from __future__ import annotations

import attrs

from proctor.actors.agent.agent_state import Book
from proctor.actors.agent.messages import Told
from proctor.actors.agent.receipts import obstacle
from proctor.actors.errors import NotExecuted
from proctor.actors.process.agent_process import Incarnation
from proctor.protocols.dialect import parse_version
from proctor.protocols.errors import Misuse
from proctor.protocols.vocabulary import AnyRequest


async def tell(request: AnyRequest, book: Book, live: Incarnation | None) -> Told:
    """Write the request to the process, if one is there and it makes sense now."""
    if live is None or live.stopper != "nobody":
        return Told(book.log, book.log.end, refused=f"no process to tell: {book.status.told}")
    told = _told(request, book, live)
    if told.refused is not None:
        return told
    try:
        await live.send(request)
    except (Misuse, NotExecuted) as error:
        return attrs.evolve(told, refused=str(error))
    return told


def _told(request: AnyRequest, book: Book, live: Incarnation) -> Told:
    dialect, memo = live.plan.dialect, live.conversation.memo
    version = parse_version(memo.version)
    refused = obstacle(request, dialect, version, book.status, running=live.working)
    return Told(book.log, book.log.end, memo.turn, dialect.can("queue", version), refused)
