"""Exit statuses of the command line: what a script can tell apart without reading a text."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
NOT_INSTALLED = 69
INTERNAL = 70
LIMITED = 75
DEADLINE = 124
BY_SIGNAL = 128
"""Plus the signal's number: 130 for Ctrl-C, 143 for SIGTERM, 141 when nobody reads stdout any more."""
STDOUT_GONE = 141
"""As a program that dies of SIGPIPE: what `| head` and `pipefail` know."""
