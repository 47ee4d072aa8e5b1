from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from proctor.cli.loading import loading


@pytest.fixture(autouse=True)
def thawed() -> Generator[None]:
    """Whatever a test does to it, the collector looks at everything again."""
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_modules_are_loaded_and_they_are_left_alone_after() -> None:
    with loading():
        assert not gc.isenabled()
        made = [["a module's own"]]
    assert gc.isenabled()
    assert all(found is not made for found in gc.get_objects())


@pytest.mark.parametrize("looking", [True, False])
def test_the_collector_is_as_it_was_also_when_loading_fails(looking: bool) -> None:
    if not looking:
        gc.disable()
    with pytest.raises(ModuleNotFoundError), loading():
        import nothing_of_that_name  # type: ignore[import-not-found] # pyright: ignore[reportMissingImports] # noqa: F401
    assert gc.isenabled() is looking
