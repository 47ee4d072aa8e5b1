"""Answers in a shape from a pool of agents; runs offline, with the extra `schema`: python examples/bills.py

Four bills are read, at most two at a time. The agents get the first answer wrong, are told what is wrong with it, and
correct it. Replace `proctor.scripted(name, script, ...)` by `proctor.claude(name, cwd=..., ...)` for the real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import trio

import proctor

CLERK = proctor.scripted("clerk", Path(__file__).with_name("bills.ndjson"))


class Bill(msgspec.Struct):
    number: str
    total: Annotated[float, msgspec.Meta(ge=0)]


async def read(pool: proctor.Pool, page: int) -> None:
    async with pool.slot():
        answer = await proctor.ask(CLERK, f"Read page {page}.", schema=Bill, timeout=60)
    if answer.ok:
        bill: Bill = answer.value
        print(f"page {page}: bill {bill.number} of {bill.total:.2f} after {answer.attempts} attempts")
    else:
        print(f"page {page}: {answer.outcome}: {answer.error}")


async def main() -> None:
    pool = proctor.Pool("clerks", limit=2)
    async with proctor.open_supervisor([proctor.pool_spec("pool", pool)]), trio.open_nursery() as nursery:
        for page in range(1, 5):
            nursery.start_soon(read, pool, page)


if __name__ == "__main__":
    proctor.run(main)
