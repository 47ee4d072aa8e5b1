from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clis import not_run
from tests.conformance.outcomes import Outcomes

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Outcomes(config.rootpath), "conformance")
    config.pluginmanager.register(not_run, "not run")


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ledgers and recordings never go to, nor sweeps look into, the state folder of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
