"""The identity of an account and of a session: by the kind of CLI, its home directory, and the keys it gets.

Nothing secret comes out: of keys and endpoints only a fingerprint.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from proctor.actors.plan.environment import HOMES, SECRETS
from proctor.actors.plan.plan import Plan

KINDS = ("claude", "codex", "opencode", "gemini", "acp", "scripted")
"""The names of the kinds of command lines: in options, fleet files, pools and metrics alike."""

_SPEAKING: Mapping[str, str] = {"opencode-serve": "opencode", "codex-acp": "acp", "claude-agent-acp": "acp"}
"""Dialects that have another name than the kind that speaks them."""


def kind_of(plan: Plan) -> str:
    """Its kind, however it is held: one of `KINDS`, or the name of a dialect of the caller's own."""
    if plan.product is None:
        return _SPEAKING.get(plan.dialect.name, plan.dialect.name)
    if plan.product.program in KINDS:
        return plan.product.program
    return plan.dialect.name if plan.dialect.name in KINDS else "acp"


def family_of(plan: Plan) -> str:
    """The CLI as its makers call it, by which accounts and kept conversations are kept apart, on disk too."""
    return plan.dialect.name if plan.product is None else plan.product.name


def home_of(plan: Plan, environ: Mapping[str, str] | None = None) -> str:
    """The home of its CLI, with its sessions and its login, as one text; its own for each agent with a private home."""
    passed = os.environ if environ is None else environ
    given = plan.workplace.env
    if plan.workplace.home == "private":
        passed = {"HOME": f"private to {plan.name}"}
    found = {name: given.get(name) or passed.get(name) for name in ("HOME", *sorted(HOMES))}
    return " ".join(f"{name}={value}" for name, value in found.items() if value)


def account_of(plan: Plan, environ: Mapping[str, str] | None = None) -> str:
    """The account that pays for its prompts: what its owner calls it, else CLI, home and the fingerprint of its keys.

    A script has an account of its own: it costs nothing."""
    if plan.conduct.account is not None:
        return plan.conduct.account
    if plan.product is None:
        return f"{family_of(plan)} {plan.name}"
    keys = sorted(f"{name}={value}" for name, value in plan.workplace.env.items() if name in SECRETS)
    what = f"key {fingerprint(*keys)}" if keys else "login"
    return f"{family_of(plan)}, {what}, home {fingerprint(home_of(plan, environ))}"


def session_key(plan: Plan, session: str) -> str:
    """A name for a session that no other has: ids are unique only within one CLI's home."""
    return fingerprint(family_of(plan), home_of(plan), session, digits=32)


def fingerprint(*texts: str, digits: int = 8) -> str:
    """Hexadecimal digits that stand for these texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:digits]
