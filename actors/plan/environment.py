"""The environment of an agent's process: an allow-list, and what its owner named.

A key or endpoint that is set here but not named is not passed, with a `Notice`: an inherited key silently overrides a login.
Variables that make a CLI believe it is nested never pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs

from proctor.actors.errors import BadOption, OptionFault
from proctor.runtime.processes import make_directory

Home = Literal["user", "private"]

ALLOWED = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TERM",
        "TZ",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
    ]
)
ALLOWED_PREFIXES = ("LC_", "XDG_")
HOMES = frozenset({"CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG_DIR"})
"""Where the CLIs keep logins when their user moved them; passed only with `home="user"`."""

SECRETS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "GEMINI_API_KEY",
)


@attrs.frozen
class Environment:
    """`variables` is the whole environment of the process; `withheld` names keys present here but not passed."""

    variables: Mapping[str, str]
    withheld: tuple[str, ...]


def parse_env(items: Sequence[str], parent: Mapping[str, str]) -> dict[str, str]:
    """`NAME` (taken from `parent`) or `NAME=VALUE` → a map. Raises `BadOption` naming the item."""
    out, faults = dict[str, str](), list[OptionFault]()
    for item in items:
        name, given, value = item.partition("=")
        if not name or "\0" in item:
            faults.append(OptionFault("env", f"{item!r}: expected NAME or NAME=VALUE"))
        elif not given and name not in parent:
            faults.append(OptionFault("env", f"{name!r}: not set here; write {name}=VALUE to give it one"))
        else:
            out[name] = value if given else parent[name]
    if faults:
        raise BadOption("\n".join(map(str, faults)), faults)
    return out


def build_environment(
    named: Mapping[str, str],
    *,
    home: Home,
    private: Path,
    extra: Mapping[str, str],
    parent: Mapping[str, str] | None = None,
) -> Environment:
    """`named` by the owner beats `extra` by the dialect beats what passes from `parent` (default: ours).

    `private` is the agent's own directory: its `tmp` is the temporary directory of the process, and with
    `home="private"` its `home` is the home. Both are made here, mode 0700.
    """
    parent = os.environ if parent is None else parent
    passed = {k: v for k, v in parent.items() if _passes(k, home)}
    # Its own: what it leaves there goes with the run.
    own = {"TMPDIR": str(_directory(private / "tmp"))}
    if home == "private":
        own["HOME"] = str(_directory(private / "home"))
    variables = {**passed, **own, **extra, **named}
    return Environment(variables, tuple(k for k in SECRETS if k in parent and k not in named))


def _passes(name: str, home: Home) -> bool:
    # They would lead out of the private home.
    if home == "private" and (name in HOMES or name.startswith("XDG_")):
        return False
    return name in ALLOWED or name.startswith(ALLOWED_PREFIXES) or name in HOMES


def _directory(path: Path) -> Path:
    make_directory(path, parents=True, exist_ok=True)
    return path
