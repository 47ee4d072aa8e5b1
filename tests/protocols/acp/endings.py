"""How the turns of each recorded run end: the ending and the agent's word for it, by the name of the recording."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.protocols.vocabulary import Ending

Turn = tuple[Ending, str]

DONE: Turn = ("completed", "end_turn")
CUT: Turn = ("interrupted", "cancelled")
REJECTED: Turn = ("interrupted", "rejected")
UNAUTHORISED: Turn = ("authentication", "-32000")
SILENT: Turn = ("error", "no_answer")

ENDINGS: Mapping[str, tuple[Turn, ...]] = {
    "claude-acp_load": (DONE, DONE),
    "claude-acp_mixed": (DONE, DONE, CUT, CUT, DONE, UNAUTHORISED, SILENT, DONE, DONE, DONE),
    "claude-acp_permission_allow": (DONE,),
    "claude-acp_permission_cancelled": (DONE,),
    "claude-acp_sigint_tool": (CUT,),
    "claude-acp_sigkill_tool": (),
    "claude-acp_sigterm_tool": (CUT,),
    "claude-acp_text": (DONE, DONE),
    "codex-acp_mixed": (
        *(DONE, DONE, DONE, CUT, CUT, UNAUTHORISED),
        *(("invalid_request", "failed"), DONE, DONE, DONE),
    ),
    "codex-acp_permission_allow": (DONE,),
    "codex-acp_permission_cancelled": (CUT,),
    "codex-acp_permission_reject": (CUT,),
    "codex-acp_sigint_tool": (),
    "codex-acp_sigkill_tool": (),
    "codex-acp_sigterm_tool": (),
    "codex-acp_text": (DONE, DONE),
    "gemini_load": (DONE,),
    "gemini_permission_allow": (DONE,),
    "gemini_permission_cancelled": (DONE,),
    "gemini_permission_reject": (DONE,),
    "gemini_sigint_tool": (),
    "gemini_sigkill_tool": (),
    "gemini_sigterm_tool": (),
    "gemini_text": (DONE, DONE),
    "opencode_load": (DONE,),
    "opencode_mixed": (
        *(DONE, REJECTED, CUT, CUT, CUT),
        *(("authentication", "-32603"), ("invalid_request", "-32603"), DONE, DONE, SILENT),
    ),
    "opencode_permission_allow": (DONE,),
    "opencode_permission_cancelled": (REJECTED,),
    "opencode_permission_reject": (REJECTED,),
    "opencode_sigint_tool": (),
    "opencode_sigkill_tool": (),
    "opencode_sigterm_tool": (),
    "opencode_text": (DONE, DONE),
}
"""OpenCode has mixed the answers of two prompts that were sent at once, so the second has none of its own."""
