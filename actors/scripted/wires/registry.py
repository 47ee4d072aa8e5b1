"""The wires that the scripted agent can speak, by name. Only the chosen one is loaded: start-up time is in every test."""

from __future__ import annotations

from proctor.actors.scripted.script import ScriptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from proctor.actors.scripted.interfaces import Wire

NAMES = ("claude", "codex", "codex-exec", "acp", "opencode", "gemini", "opencode-run")


def wire_named(name: str) -> type[Wire]:
    """The wire of that name. ScriptError when there is none."""
    if name == "claude":
        from proctor.actors.scripted.wires.claude import ClaudeWire

        return ClaudeWire
    if name == "codex":
        from proctor.actors.scripted.wires.codex import CodexWire

        return CodexWire
    if name in ("codex-exec", "opencode-run"):
        from proctor.actors.scripted.wires.oneshots import CodexExecWire, OpencodeRunWire

        return CodexExecWire if name == "codex-exec" else OpencodeRunWire
    if name in NAMES:
        from proctor.actors.scripted.wires.acp import AcpWire, GeminiWire, OpencodeWire

        return {"acp": AcpWire, "gemini": GeminiWire, "opencode": OpencodeWire}[name]
    raise ScriptError("--dialect", 0, f"unknown dialect {name!r}; there are {', '.join(NAMES)}")
