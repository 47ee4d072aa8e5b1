"""Formats of lines on stderr: text, or JSON where `PROCTOR_LOG_FORMAT=json`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from proctor.cli.ui.text import json_printable, printable

_STANDARD_FIELDS = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))


def is_json(environ: Mapping[str, str]) -> bool:
    """Whether every line on stderr must be JSON."""
    return environ.get("PROCTOR_LOG_FORMAT", "").lower() == "json"


def as_line(text: str, environ: Mapping[str, str]) -> str:
    """A message of a command as a line for stderr: text, or a JSON record like those of the log."""
    if not is_json(environ):
        return f"proctor: {printable(text)}\n"
    record = logging.LogRecord("proctor", logging.INFO, "", 0, text, None, None)
    return f"{JsonFormatter().format(record)}\n"


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,123 info proctor.agent: ...`: one line, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        record.level = record.levelname.lower()
        return printable(super().format(record))


class JsonFormatter(logging.Formatter):
    """One line of JSON: `time` (UTC), `level`, `logger`, `message`, and the extra fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS},
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json_printable(json.dumps(fields, default=str, ensure_ascii=False))
