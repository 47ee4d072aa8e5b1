"""The same prompts to several providers, and one table: python examples/compare_providers.py [--real] ["PROMPT" ...]

Without `--real` the providers are two scripted agents, in the wires of two command lines; with it, those that are
installed. Whatever answers completion requests can be registered beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import proctor
from proctor.actors.serving.providers import Context

HELLO = Path(__file__).with_name("hello.ndjson")
PROMPTS = ["Say hello.", "And once more."]


def scripted(wire: str, context: Context) -> proctor.ChildSpec:
    return proctor.scripted(f"{wire}-{context['row']}", HELLO, dialect=wire)


def registered(*, real: bool) -> proctor.Providers:
    providers = proctor.Providers()
    if real:
        providers.register("claude", lambda context: proctor.claude("claude"))
        providers.register("codex", lambda context: proctor.codex("codex"))
        providers.register("opencode", lambda context: proctor.opencode("opencode"))
    else:
        providers.register("claude", lambda context: scripted("claude", context), needs=["row"])
        providers.register("codex", lambda context: scripted("codex", context), needs=["row"])
    return providers


async def measure(provider: proctor.Provider, prompt: str) -> str:
    begun = trio.current_time()
    try:
        made = await provider.completion(proctor.CompletionRequest(prompt=prompt))
    except proctor.CompletionError as error:
        return f"{trio.current_time() - begun:8.2f} {'-':>8} {'-':>10}  {error}"
    usage, cost = made.usage, made.raw.cost_usd
    tokens = "-" if usage is None else str(usage.output_tokens)
    dollars = "-" if cost is None else f"{cost:.4f}"
    return f"{trio.current_time() - begun:8.2f} {tokens:>8} {dollars:>10}  {' '.join(made.text.split())[:50]}"


async def main() -> None:
    given = sys.argv[1:]
    providers = registered(real="--real" in given)
    prompts = [word for word in given if word != "--real"] or PROMPTS
    print(f"{'provider':10} {'prompt':>6} {'seconds':>8} {'tokens':>8} {'dollars':>10}  answer")
    for row, prompt in enumerate(prompts, 1):
        for name in providers.names:
            line = await measure(providers.create(name, {"row": row}), prompt)
            print(f"{name:10} {row:6} {line}")


if __name__ == "__main__":
    proctor.run(main)
