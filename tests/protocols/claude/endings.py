"""How the turns of every recorded run of Claude Code ended, written from what the runs were made to show.

A turn is its ending and how many prompts it answered; a background turn answers none.
"""

from __future__ import annotations

from collections.abc import Mapping

from proctor.protocols.vocabulary import Ending

Turn = tuple[Ending, int]

DONE: Turn = ("completed", 1)
BACKGROUND: Turn = ("completed", 0)
CUT: Turn = ("interrupted", 1)

# Nothing on stdout ends a turn: killed by a signal, refused before the start, not stream-json, or given up on.
NONE = """
    a_json_verbose a_text b_no_verbose d_bypass_root e_eof_none f_crash_stream1 f_crash_tool1
    f_resume_sid_conflict f_sid_bad f_sid_dup g_schema_bad i_hang_ping_default j_budget_bad l_epipe_bash
    l_epipe_bash@2.1.197 l_epipe_stream l_sighup_bash l_sigkill_bash l_sigkill_group_bash l_sigkill_retry
    l_sigkill_stream l_sigterm_bash l_sigterm_bash@2.1.197 l_sigterm_group_bash l_sigterm_group_bash@2.1.197
    l_sigterm_retry l_sigterm_setsid l_sigterm_startup l_sigterm_stream l_sigterm_stubborn m_bad_choice m_bad_flag
    m_bad_json m_bad_mcp_config m_bad_role m_bad_settings m_empty_prompt m_no_auth_text m_no_prompt
    m_stream_in_text_out
"""

# One prompt and one answer. A denied or failed tool, prose in place of a schema, a stream that was repaired: all good.
ONE_ANSWER = """
    a_json a_json@2.1.197 b_stdin_prompt b_stream b_stream@2.1.197 b_thinking c_partial c_partial@2.1.197
    c_partial_tool d_allowed d_bad_input d_bash_timeout@2.1.197 d_bypass_sandbox d_denied d_denied@2.1.197
    d_denied_bash d_disallowed d_dontask d_empty d_parallel d_plan d_stop_max_tokens d_subagent@2.1.197
    d_unknown_tool d_write_ok e_askuser e_cancel_async e_disable_bg e_end_session e_end_session_bg
    e_end_session_bg@2.1.197 e_eof_bg_late e_eof_bg_late@2.1.197 e_eof_bg_sigterm e_eof_bg_stop e_eof_midturn
    e_eof_perm e_exit_after_stop e_exitplan e_hook_error e_hook_error_block e_hook_error_block@2.1.197 e_hook_slow
    e_hooks e_images e_misc_control e_misc_control@2.1.197 e_no_initialize e_perm_badanswer e_perm_error e_perm_none
    e_perm_rewrite e_perm_silent e_perm_update e_prompts_none e_sdk_mcp e_sdk_mcp_dead e_sdk_mcp_flag e_state_events
    e_stop_task e_update_env f_continue f_continue_othercwd f_crash_stream2 f_crash_tool2 f_fork f_fork_id
    f_no_persist f_resume1 f_resume2 f_resume_othercwd f_session_id g_schema g_schema_fix g_schema_text h_mcp
    h_mcp_big h_mcp_crash h_mcp_dead h_mcp_missing h_mcp_noise h_mcp_project h_mcp_project_strict h_mcp_slow
    h_mcp_slow_timeout h_mcp_stubborn h_mcp_tool_timeout i_drop_mid i_drop_mid@2.1.197 i_drop_mid_default
    i_drop_once i_drop_once_partial i_drop_reset i_flaky i_hang_byte i_hang_mid_default i_hang_mid_watchdog i_html
    i_malformed i_no_stop i_slow i_sse_overloaded j_max_turns_1_text k_bare k_default k_hook_events k_name
    k_restricted k_settings k_tools_none l_sigint_idle l_sigkill_idle l_sigterm_bg_idle l_sigterm_idle
    m_bad_config@2.1.197 m_bad_cwd_file m_bad_json_after m_blank_lines m_no_newline m_unknown_type n_bash20
    n_bash_binary n_read_img n_small_deltas n_text20 n_text20_partial n_write20 o_config_dir o_hold o_mirror
    o_nonroot o_peer_b o_rate_limit_oauth o_tool_summaries w_bg_default@2.1.197 w_bg_stdin_ceil20
"""

# Resumed by the CLI itself, without a message of this process: the prompt it names is one of the process before.
RESUMED = "f_crash_stream_auto f_crash_tool_auto"

# A background shell or subagent ended later and made a turn of its own.
THEN_BACKGROUND = "d_bash_background@2.1.197 d_bash_timeout d_subagent w_bg_ceil20 w_bg_default"

INTERRUPTED = """
    e_end_session_midturn e_interrupt_cancel_all e_perm_deny_interrupt e_sigint_session l_sigint2_bash l_sigint_bash
    l_sigint_bash@2.1.197 l_sigint_retry l_sigint_stream l_sigint_stubborn
"""

ONE_BAD_END: Mapping[Ending, str] = {
    "refused_start": """
        f_no_persist_resume f_resume_missing f_resume_othercwd@2.1.197 m_bad_config m_startup_failure_results
    """,
    "authentication": "i_401 i_401_r2@2.1.197 i_403 m_no_auth",
    "limit": "o_rate_limit_rejected",
    "overloaded": """
        i_429 i_429_default i_429_no_retry i_429_retry_after i_429_retry_after_long i_529 i_529_default
        i_529_fallback o_retry_watchdog
    """,
    "api_error": "i_500 i_500_default i_500_r0 i_drop_nofallback i_hang_headers i_refused i_refused_default",
    "invalid_request": "i_400",
    "prompt_too_long": "i_400_too_long i_413 n_stdin20",
    "model_not_found": "i_404_model",
    "model_refused": "d_stop_refusal",
    "max_turns": "j_max_turns",
    "budget": "j_budget",
    "schema_unmet": "g_schema_never",
}

SEVERAL: Mapping[str, tuple[Turn, ...]] = {
    "e_budget_session": (("budget", 1), ("budget", 1)),
    "e_host": (("completed", 2), CUT, DONE),
    "e_host@2.1.197": (("completed", 2), CUT, DONE),
    "e_interrupt_idle": (DONE, DONE),
    "e_interrupt_tool": (CUT, DONE),
    "e_perm_cancel": (CUT, DONE),
    "e_perm_cancel@2.1.197": (CUT, DONE),
    "e_queue": (DONE, ("completed", 2)),
    "e_queue_mid": (("completed", 2),),
    "e_session": (DONE, DONE, DONE, CUT, DONE),
    "e_session@2.1.197": (DONE, DONE, DONE, CUT, DONE),
    "e_slash": (DONE,) * 7,
    "e_slash@2.1.197": (DONE,) * 7,
    "j_session_max_turns": (("max_turns", 1), DONE),
}

ENDINGS: Mapping[str, tuple[Turn, ...]] = {
    **dict.fromkeys(NONE.split(), ()),
    **dict.fromkeys(ONE_ANSWER.split(), (DONE,)),
    **dict.fromkeys(RESUMED.split(), (DONE,)),
    **dict.fromkeys(THEN_BACKGROUND.split(), (DONE, BACKGROUND)),
    **dict.fromkeys(INTERRUPTED.split(), (CUT,)),
    **{name: ((ending, 1),) for ending, names in ONE_BAD_END.items() for name in names.split()},
    **SEVERAL,
}
