"""Refuse what an agent must not say or do, line by line; runs offline: python examples/validate.py

A validator is asked about each event that has content. What it refuses is told in its place as a `Garbled` event with the
reason `refused`; the end of a turn that it refuses is a failed one. Five lines in a row that are refused, or that are not of the
protocol at all, end the process (`error_budget`).
"""

from __future__ import annotations

from pathlib import Path

import proctor

HERE = Path(__file__).parent


def no_secrets(event: proctor.AnyEvent) -> str | None:
    match event:
        case proctor.Text(text=text) | proctor.TextDelta(text=text) if "secret" in text:
            return "it names a secret"
        case proctor.TurnEnded(text=str(text)) if "secret" in text:
            return "the answer names a secret"
        case _:
            return None


async def main() -> None:
    agent = proctor.scripted("talker", HERE / "secret.ndjson", validators=[no_secrets], error_budget=3)
    async with proctor.stream(agent, "What is in this folder?") as live:
        async for event in live:
            match event:
                case proctor.Text():
                    print(f"accepted: {event.text}")
                case proctor.Garbled():
                    print(f"refused at the stage {event.stage!r}: {event.error}")
                case _:
                    pass
    print(f"{live.answer.outcome}: {live.answer.error}")


if __name__ == "__main__":
    proctor.run(main)
