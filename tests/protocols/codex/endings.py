"""How the turns of every recorded run of Codex ended, written from what the runs were made to show.

A turn is its ending and how many prompts it answered. What is in none of the tables ended one good turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from proctor.protocols.vocabulary import Ending
from tests.protocols.codex.player import NAMES

Turn = tuple[Ending, int]

DONE: Turn = ("completed", 1)
CUT: Turn = ("interrupted", 1)

# No turn ended: killed or closed in the middle, refused before the start, no turn asked for, or given up on.
_NONE = """
    app_approval_never_answered app_eof_streaming app_eof_tool app_interrupt_wrong app_protocol_errors
    app_resume_busy app_sigint_idle app_sigint_streaming app_sigint_tool app_sigkill_idle app_sigkill_streaming
    app_sigkill_tool app_sigterm_idle app_sigterm_streaming app_sigterm_tool app_sigterm_twice_tool
    exec_bad_config_value exec_badflag exec_cd_missing exec_conn_refused exec_empty_prompt
    exec_err_429_retry_after_3600 exec_hang_noheaders_idle2s exec_mcp_crash_required exec_noauth_default_provider
    exec_norepo exec_resume_busy_second exec_resume_unknown exec_schema_badfile exec_schema_nofile
    exec_sighup_streaming exec_sighup_tool exec_sigint_streaming exec_sigint_tool exec_sigint_tool_grandchildren
    exec_sigint_tool_sandboxed exec_sigkill_streaming exec_sigkill_tool exec_sigkill_tool_grandchildren
    exec_sigkill_tool_grandchildren_sandboxed exec_sigkill_tool_group exec_sigkill_tool_sandboxed
    exec_sigquit_streaming exec_sigterm_streaming exec_sigterm_tool exec_sigterm_tool_grandchildren
    exec_sigterm_tool_grandchildren_sandboxed exec_sigterm_tool_group exec_sigterm_tool_sandboxed exec_stdin_open
    exec_strict_config exec_version exec_wire_chat shim_sigint_streaming shim_sigkill_streaming
    shim_sigterm_streaming
"""

_INTERRUPTED = """
    app_interrupt_approval app_interrupt_clean app_interrupt_conn_refused app_interrupt_retry_after
    app_interrupt_tool
"""

_FAILED: Mapping[str, Ending] = {
    "app_err_401": "authentication",
    "app_err_drop": "api_error",
    "app_err_failed": "api_error",
    "exec_conn_refused_bounded": "api_error",
    "exec_drop": "api_error",
    "exec_endearly": "api_error",
    "exec_err_400": "invalid_request",
    "exec_err_401": "authentication",
    "exec_err_404": "model_not_found",
    "exec_err_429": "overloaded",
    "exec_err_429_quota": "limit",
    "exec_err_429_retry_after_8": "overloaded",
    "exec_err_500": "api_error",
    "exec_err_503": "overloaded",
    "exec_failed": "api_error",
    "exec_hang_idle2s": "api_error",
    "exec_incomplete": "error",
    "exec_missing_env_key": "authentication",
    "exec_noretry_500": "api_error",
    "exec_noretry_drop": "api_error",
}

_SEVERAL: Mapping[str, tuple[Turn, ...]] = {
    "app_err_quota": (("limit", 1), DONE),
    "app_interrupt_streaming": (CUT, DONE),
    "app_steer": (("completed", 2),),  # a prompt in mid-turn is taken into the turn
    "app_two_turns": (DONE, DONE),
}

ENDINGS: Mapping[str, tuple[Turn, ...]] = {
    **dict.fromkeys(NAMES, (DONE,)),
    **dict.fromkeys(_NONE.split(), ()),
    **dict.fromkeys(_INTERRUPTED.split(), (CUT,)),
    **{name: ((ending, 1),) for name, ending in _FAILED.items()},
    **_SEVERAL,
}
