"""A fleet inside a program of your own; runs offline: python examples/embed.py

Two agents under one supervisor. The second is killed in the middle of its first turn; its conversation goes on.
Replace `proctor.scripted(name, script, ...)` by `proctor.claude(name, cwd=..., model=..., ...)` for the real one.
"""

from __future__ import annotations

from pathlib import Path

import proctor

HERE = Path(__file__).parent


async def main() -> None:
    fleet = [
        proctor.scripted("reader", HERE / "answer.ndjson"),
        proctor.scripted("phoenix", HERE / "crash.ndjson", on_crash="resume", home="private"),
    ]
    async with proctor.open_supervisor(fleet, intensity=3, period=60) as sup:
        answer = await sup.agent("reader").ask("What is in this folder?", timeout=60)
        print(f"reader: {answer.outcome}, ${answer.cost_usd:.4f}: {answer.text}")

        async with sup.agent("phoenix").stream("Do the work, whatever happens to you.") as turn:
            async for event in turn:
                match event:
                    case proctor.Text():
                        print(f"phoenix: {event.text}")
                    case proctor.Exited():
                        print(f"phoenix: its process ended ({event.outcome})")
                    case _:
                        pass
        print(
            f"phoenix: {turn.answer.outcome}, {(await sup.agent('phoenix').status()).incarnation} processes"
        )


if __name__ == "__main__":
    proctor.run(main)
