from __future__ import annotations

import math
from typing import Any

import pytest

from proctor.runtime import ChildSpec, Flags, InvalidSpec, check_childspecs, open_supervisor, supervisor_spec
from proctor.runtime.spec import Backoff, Probe
from tests.runtime.stage import Notes, forever, player
from tests.tables import each_row


@pytest.mark.covers("S1")
def test_defaults_are_filled_in() -> None:
    spec = ChildSpec("a", forever)
    assert (spec.restart, spec.shutdown, spec.significant, spec.type, spec.args) == (
        "permanent",
        5.0,
        False,
        "worker",
        (),
    )
    assert ChildSpec("a", forever, type="supervisor").shutdown == math.inf
    assert supervisor_spec("a").shutdown == math.inf


WRONG: list[tuple[str, Any]] = [
    ("id", ""),
    ("id", 7),
    ("id", "a/b"),
    ("start", None),
    ("restart", "always"),
    ("shutdown", -1),
    ("shutdown", "kill"),
    ("shutdown", math.nan),
    ("shutdown", True),
    ("significant", 1),
    ("type", "process"),
    ("name", ""),
    ("name", "/a"),
    ("start_timeout", 0),
    ("mailbox", 0),
    ("mailbox", math.inf),
    ("overflow", "grow"),
    ("drain", None),
    ("backoff", 1.0),
    ("watchdog", 0),
    ("probe", forever),
    ("keep_mailbox", "yes"),
]


@pytest.mark.covers("S2")
@each_row(("field", "value"), WRONG, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_a_wrong_value_is_named_with_what_is_accepted(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"id": "a", "start": forever}
    with pytest.raises(InvalidSpec) as caught:
        ChildSpec(**(fields | {field: value}))
    assert (caught.value.field, repr(caught.value.value)) == (field, repr(value))
    assert f"{field}" in str(caught.value)
    assert f"is {value!r}: expected {caught.value.accepted}" in str(caught.value)


WRONG_BACKOFF: list[tuple[str, Any]] = [
    ("min_delay", 0),
    ("max_delay", math.inf),
    ("max_delay", 0.5),
    ("factor", 0.5),
    ("jitter", 1.5),
    ("reset_after", 0),
    ("max_in_row", -1),
]


@pytest.mark.covers("X1")
@each_row(("field", "value"), WRONG_BACKOFF, ids=lambda part: repr(part))
def test_a_wrong_backoff_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidSpec, match=f"^{field} of 'backoff' is {value!r}: expected "):
        Backoff(**{field: value})


@pytest.mark.covers("X7")
@pytest.mark.parametrize(
    ("field", "value"), [("check", None), ("period", 0), ("timeout", math.inf), ("failures", 0)]
)
def test_a_wrong_probe_is_named(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"check": forever}
    with pytest.raises(InvalidSpec, match=f"^{field} of 'probe' is {value!r}: expected "):
        Probe(**(fields | {field: value}))


def test_the_text_of_a_wrong_value() -> None:
    with pytest.raises(
        InvalidSpec, match=r"^restart of 'a' is 'always': expected 'permanent' or 'transient' or"
    ):
        ChildSpec("a", forever, restart="always")  # type: ignore[arg-type]  # pyright: ignore


@pytest.mark.covers("S2", "S38")
@pytest.mark.parametrize("grace", [0, 0.5, math.inf, "brutal_kill"])
def test_every_grace_is_valid_for_a_worker(grace: Any) -> None:
    assert ChildSpec("a", forever, shutdown=grace).grace == grace


@pytest.mark.covers("D2")
def test_a_missing_field_and_an_unknown_one_are_refused() -> None:
    with pytest.raises(TypeError):
        ChildSpec("a")  # type: ignore[call-arg]  # pyright: ignore
    with pytest.raises(TypeError):
        ChildSpec("a", forever, retries=3)  # type: ignore[call-arg]  # pyright: ignore


@pytest.mark.covers("S3")
def test_one_id_twice_is_invalid_and_nothing_starts() -> None:
    notes: Notes = []
    with pytest.raises(InvalidSpec, match="id is 'a': expected an id used once"):
        open_supervisor([player("a", notes), player("b", notes), player("a", notes)])
    assert notes == []


@pytest.mark.covers("S4")
def test_flags_have_the_defaults_of_otp() -> None:
    flags = Flags()
    assert (flags.strategy, flags.intensity, flags.period, flags.auto_shutdown) == (
        "one_for_one",
        1,
        5.0,
        "never",
    )


@pytest.mark.covers("S4")
@each_row(
    ("field", "value"),
    [
        ("strategy", "all"),
        ("intensity", -1),
        ("intensity", 1.5),
        ("intensity", math.inf),
        ("intensity", True),
        ("period", 0),
        ("period", math.inf),
        ("period", "5"),
        ("auto_shutdown", "always"),
    ],
)
def test_a_wrong_flag_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidSpec) as caught:
        open_supervisor([], **{field: value})
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.covers("S5")
def test_a_permanent_child_cannot_be_significant() -> None:
    with pytest.raises(InvalidSpec, match="significant of 'a' is True: expected False for a permanent child"):
        ChildSpec("a", forever, significant=True)


@pytest.mark.covers("S5", "S6")
@pytest.mark.parametrize("restart", ["transient", "temporary"])
def test_a_significant_child_needs_automatic_shutdown(restart: Any) -> None:
    specs = [ChildSpec("a", forever, restart=restart, significant=True)]
    check_childspecs(specs, "any_significant")
    check_childspecs(specs, "all_significant")
    with pytest.raises(InvalidSpec, match="auto_shutdown is 'never'"):
        check_childspecs(specs)
    with pytest.raises(InvalidSpec):
        supervisor_spec("s", specs)


@pytest.mark.covers("S5")
async def test_a_significant_child_is_refused_by_start_child_too() -> None:
    async with open_supervisor() as sup:
        with pytest.raises(InvalidSpec):
            await sup.start_child(ChildSpec("a", forever, restart="transient", significant=True))
        assert await sup.which_children() == ()


def test_something_else_than_a_spec_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="expected a ChildSpec"):
        check_childspecs(["a"])  # type: ignore[list-item]  # pyright: ignore
