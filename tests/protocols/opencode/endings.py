"""How the turn of each recorded run ends; a run that is not named here has no end of its turn, and so no answer."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.protocols.vocabulary import Ending

DONE = [
    "agent_plan",
    "agent_unknown",
    "attach",
    "bad_config_key",
    "continue",
    "daemonised_child",
    "err_500_then_ok",
    "file_image",
    "file_text",
    "fork",
    "huge_2mb",
    "long_300",
    "permission_ask_auto",
    "permission_ask_continue",
    "permission_deny",
    "reasoning",
    "reasoning_thinking",
    "session",
    "session_first",
    "stdin_and_arg",
    "stdin_prompt",
    "text",
    "tool",
    "tool3",
    "toolout_5mb",
]

ENDINGS: Mapping[str, Ending] = {
    **{f"run_{name}": "completed" for name in DONE},
    "run_conn_refused": "api_error",
    "run_drop": "api_error",
    "run_endearly": "api_error",
    "run_endearly_steps3": "api_error",
    "run_err_400": "invalid_request",
    "run_err_401": "authentication",
    "run_err_429_quota": "limit",
    "run_err_500": "api_error",
    "run_failed": "api_error",
    "run_garbage": "api_error",
    "run_incomplete": "error",
    "run_model_noprovider": "api_error",
    "run_model_unknown": "api_error",
    "run_noauth": "api_error",
}
