"""The same prompts to every CLI that is installed: python examples/three_clis.py "PROMPT" ["PROMPT" ...]

Each prompt is a process of its own, started, asked and stopped; the CLIs take their turns at the same time.
"""

from __future__ import annotations

import sys

import trio

import proctor


async def compare(cli: str, prompts: list[str]) -> None:
    for prompt in prompts:
        begun = trio.current_time()
        try:
            answer = await proctor.ask(getattr(proctor, cli)(cli), prompt, timeout=600)
        except proctor.AgentError as error:
            print(f"{cli:8} {error}")
            continue
        cost = "" if answer.cost_usd is None else f"${answer.cost_usd:.4f}"
        print(f"{cli:8} {trio.current_time() - begun:6.1f} s {cost:>9} {answer.outcome}: {prompt}")


async def main() -> None:
    async with trio.open_nursery() as nursery:
        for cli in ("claude", "codex", "opencode"):
            nursery.start_soon(compare, cli, sys.argv[1:] or ["Say hello."])


if __name__ == "__main__":
    proctor.run(main)
