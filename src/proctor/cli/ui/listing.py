"""Lists of records on stdout: as a table, as one JSON array, or as a line of JSON each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from proctor.cli.exit_status import OK
from proctor.cli.ui.text import aligned, one_line

Record = Mapping[str, Any]
Row = tuple[str, ...]
Column = str | Callable[[Record], str]
"""A field of a record, or a function that makes the text of a cell."""


def show(output: str, records: Sequence[Record], columns: Mapping[str, Column]) -> int:
    """Write records in an output format. `columns` has the field of each title of the table, or a function of the record."""
    if output == "table":
        write(aligned([tuple(columns), *(_row(record, columns.values()) for record in records)]))
    elif output == "json":
        write([json.dumps(records, indent=2)])
    else:
        write(map(json.dumps, records))
    return OK


def _row(record: Record, columns: Iterable[Column]) -> Row:
    return tuple(cell(record[c]) if isinstance(c, str) else cell(c(record)) for c in columns)


def cell(value: object) -> str:
    """The text of a cell, on one line; empty for None."""
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "" if value is None else one_line(whole)


def write(lines: Iterable[str]) -> None:
    """Write lines to stdout, at once."""
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
