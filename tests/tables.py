"""A table of rows in one test: every row is tried, and a failure names all the rows that failed.

A case of its own costs pytest some milliseconds in each run, and each worker the time to collect it. That is more than
most rows of a table take.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from _pytest.mark import ParameterSet

SHOWN = 5
"""Tracebacks that a failure shows; the other rows are named only."""

Test = Callable[..., None]


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    ids: Sequence[str] | Callable[[Any], object] | None = None,
) -> Callable[[Test], Test]:
    """Call the test with each row in turn; takes what `pytest.mark.parametrize` takes.

    The rows share the fixtures of the test: for one that needs a fresh folder or clock in each row, parametrize.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    table = [_values(row, len(columns)) for row in rows]
    labels = [_label(row, ids, number) for number, row in enumerate(table)]

    def fold(test: Test) -> Test:
        signature = inspect.signature(test)
        assert {*columns} <= {*signature.parameters}, f"{test.__name__} has no {columns}"

        @functools.wraps(test)
        def folded(**fixtures: Any) -> None:
            failures: dict[str, Exception] = {}
            for label, (_, values) in zip(labels, table, strict=True):
                try:
                    test(**fixtures, **dict(zip(columns, values, strict=True)))
                except Exception as failure:  # noqa: BLE001  # raised below
                    failure.add_note(f"row: {label}")
                    failures[label] = failure
            if failures:
                shown = [*failures.values()][:SHOWN]
                raise ExceptionGroup(f"{len(failures)} of {len(table)} rows failed: {[*failures]}", shown)

        rest = [each for name, each in signature.parameters.items() if name not in columns]
        folded.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        assert table, f"{test.__name__} has no rows"
        return folded

    return fold


def _values(row: Any, columns: int) -> tuple[str | None, Sequence[Any]]:
    """The id that the row itself has, and its values."""
    if isinstance(row, ParameterSet):
        assert not row.marks, "the rows of one test share its marks"
        return (row.id if isinstance(row.id, str) else None), row.values
    return None, (row,) if columns == 1 else row


def _label(
    row: tuple[str | None, Sequence[Any]],
    ids: Sequence[str] | Callable[[Any], object] | None,
    number: int,
) -> str:
    own, values = row
    if own is not None:
        return own
    if ids is None or callable(ids):
        found = "-".join(str(ids(value) if ids else value)[:60] for value in values)
        return f"{number}: {found}"
    return ids[number]
