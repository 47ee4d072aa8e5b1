"""The short table: streaming and calls, each beside its physical limit and a peer.

python -m bench [--rounds 7] [--lines 100000] [--operations 30000]
"""

from __future__ import annotations

from bench import mailbox, ndjson
from bench.contest import hold, options, table


def main() -> None:
    """Print the table."""
    chosen = options(
        "Streaming and calls beside their limits and a peer each",
        lines=ndjson.LINES,
        operations=mailbox.OPERATIONS,
    )
    works = (
        ndjson.work(chosen.lines).only(ndjson.LIMIT, ndjson.WHOLE, ndjson.PEER),
        mailbox.calls(1, chosen.operations).only(mailbox.PING_PONG, mailbox.BY_NAME, mailbox.ASYNCIO),
    )
    print(table(result for work in works for result in hold(work, chosen.rounds)))


if __name__ == "__main__":
    main()
