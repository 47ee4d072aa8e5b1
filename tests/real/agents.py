"""Homes and options of the agents that are no Claude Code: Codex, OpenCode and Gemini CLI, pointed at a fake of their API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from proctor.actors.plan.options import AgentOptions
from proctor.actors.plan.permissions import Asker
from proctor.protocols.vocabulary import ApprovalRequested
from tests.real.homes import ClaudeHome, make_home

KEPT = ("PATH", "LANG", "HOME", "TMPDIR", "NO_PROXY")
SEEING = {"attachment": True, "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}}
"""What OpenCode is told of a model that takes pictures."""
CLOSED = "http://127.0.0.1:9"
"""Where nothing listens: what a CLI would fetch from elsewhere fails at once."""


def codex_home(root: Path, url: str) -> ClaudeHome:
    """A private home with a key that is none."""
    return _home(root, url, {"FAKE_KEY": "sk-test-not-a-real-key"})


def codex_options(executable: Path, home: ClaudeHome, url: str) -> AgentOptions:
    """Options of a Codex whose only provider is the fake."""
    provider = f'{{name="fake",base_url="{url}",wire_api="responses",env_key="FAKE_KEY"}}'
    return {
        "executable": executable,
        "cwd": home.work,
        "env": home.environment,
        "model": "gpt-5.5",
        "extra": ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={provider}"),
    }


def opencode_home(root: Path, url: str) -> ClaudeHome:
    """A private home whose only provider is the fake."""
    model = {"name": "m1", "limit": {"context": 128000, "output": 8192}, "tool_call": True, **SEEING}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Fake",
        "options": {"baseURL": url, "apiKey": "sk-fake"},
        "models": {"m1": model},
    }
    config = {"provider": {"fake": provider}, "enabled_providers": ["fake"]}
    named = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "npm_config_registry": CLOSED}
    return _home(root, url, named)


def gemini_home(root: Path, url: str) -> ClaudeHome:
    """A private home with a key that is none."""
    named = {
        "GEMINI_API_KEY": "AIza-fake",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    return _home(root, url, named)


def _home(root: Path, url: str, named: Mapping[str, str]) -> ClaudeHome:
    made = make_home(root, url)
    kept = {name: made.environment[name] for name in KEPT}
    return attrs.evolve(made, environment={**kept, **named})


def by_word(words: Mapping[str, bool]) -> Asker:
    """Allows or denies by a word in what is asked, and leaves anything else unanswered until the deadline."""

    async def ask(question: ApprovalRequested) -> bool:
        said = f"{question.input} {question.description}"
        for word, allow in words.items():
            if word in said:
                return allow
        await trio.sleep_forever()
        return False

    return ask
