from __future__ import annotations

import pytest

from tests.conformance.outcomes import Outcomes


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Outcomes(config.rootpath), "conformance")
