"""The two faces are what the generator makes of the public names, and no name is without a column."""

from __future__ import annotations

import inspect
from pathlib import Path

import attrs
import pytest

import proctor
from proctor import aio, sync
from tests.faces import columns
from tests.faces.columns import CLASSES, Proxied
from tests.faces.page import PAGE, page
from tests.faces.source import Member, members_of
from tests.faces.write import ROOT, files, kind_of, write


def test_the_faces_are_what_the_generator_writes(tmp_path: Path) -> None:
    write(tmp_path)
    for path, _ in files():
        written = tmp_path / path.relative_to(ROOT)
        assert path.read_text() == written.read_text(), f"{path.name}: python -m tests.faces"
    assert (ROOT / PAGE).read_text() == page(), "python -m tests.faces"


def test_every_public_name_has_a_column() -> None:
    assert set(proctor.__all__) - columns.known() == set()
    data = {name for name in columns.data() if not hasattr(proctor, name)}
    assert data == set()


def is_async(kind: type) -> bool:
    found = members_of(kind).values()
    return any((m.is_async or m.given or m.name == "__aiter__") and not m.name.startswith("_") for m in found)


def test_no_class_with_async_methods_passes_for_data() -> None:
    called_by_agents = {"Actor", "StoreBackend", "Tool"}
    classes = {name for name in columns.data() if inspect.isclass(getattr(proctor, name))}
    found = {name for name in classes if is_async(getattr(proctor, name))}
    assert found == called_by_agents


def test_a_method_of_which_nobody_said_how_it_is_called_stops_the_generator() -> None:
    class New:
        def look(self) -> None: ...

    [member] = [m for m in members_of(proctor.Agent).values() if m.name == "kept_state"]
    new = attrs.evolve(member, name="look")
    assert isinstance(new, Member)
    with pytest.raises(KeyError, match=r"New\.look: is it direct, plain or hidden"):
        kind_of(Proxied(source=New, home="agents"), new)


def test_the_faces_have_the_names_of_proctor() -> None:
    own = {"BridgeClosed", "BridgeError", "CallerGone", "TrioThread", "WrongFace", "policy"}
    secondary = {proxied.source.__name__ for proxied in CLASSES} - set(proctor.__all__)
    expected = (set(proctor.__all__) - columns.ABSENT.keys()) | own | secondary
    assert set(aio.__all__) == expected
    assert set(sync.__all__) == expected | {"timeout"}


@pytest.mark.parametrize("face", [aio, sync])
def test_a_name_that_does_not_exist_is_said(face: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = face.nothing  # type: ignore[attr-defined]
