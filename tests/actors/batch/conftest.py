from __future__ import annotations

from proctor.testing.fixtures import no_leaks_of_the_test, private_state, scripted_agent

__all__ = ["no_leaks_of_the_test", "private_state", "scripted_agent"]
