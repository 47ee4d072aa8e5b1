"""The tests against whole programs that evaluate agents. These are too heavy for every environment of a developer, so the tests are
collected only by `make harnesses`, which names the Python that has them."""

from __future__ import annotations

import os

HARNESSES = os.environ.get("PROCTOR_HARNESSES", "")
collect_ignore_glob = [] if HARNESSES else ["test_*.py"]

# the CLIs and their fakes
from tests.real.conftest import (
    bare_environment,
    claude_home,
    installed_clis,
    messages_api,
    program_of,
)

__all__ = ["bare_environment", "claude_home", "installed_clis", "messages_api", "program_of"]
