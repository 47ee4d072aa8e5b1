"""The program's log on stderr, as `PROCTOR_LOG` and `PROCTOR_LOG_FORMAT` say.

A stderr that nobody reads must not hold up agents: records go into a bounded queue, a thread of its own writes them,
and what finds no room is counted and told with the next that does. At the end the thread has half a second.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import threading
from collections.abc import Mapping
from datetime import UTC, datetime

from proctor.cli.ui.text import json_printable, printable

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
ROOM = 10_000
"""Records that may wait to be written."""

_LAST = 0.5
_OWN = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))


def is_json(environ: Mapping[str, str]) -> bool:
    """Whether stderr is to have lines of JSON, and nothing else."""
    return environ.get("PROCTOR_LOG_FORMAT", "").lower() == "json"


def as_line(text: str, environ: Mapping[str, str]) -> str:
    """A line of a command's own for stderr: as text, or a record of JSON like those of the log."""
    if not is_json(environ):
        return f"proctor: {printable(text)}\n"
    record = logging.LogRecord("proctor", logging.INFO, "", 0, text, None, None)
    return f"{Json().format(record)}\n"


class Text(logging.Formatter):
    """`2026-01-31 12:00:00,123 info proctor.agent: ...`: a line, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        record.level = record.levelname.lower()
        return printable(super().format(record))


class Json(logging.Formatter):
    """A line of JSON: `time` (UTC), `level`, `logger`, `message`, and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json_printable(json.dumps(told, default=str, ensure_ascii=False))


class Behind(logging.Handler):
    """Writes to a descriptor behind the back of whoever logs."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._waiting = queue.Queue[bytes](ROOM)
        self._lost = 0
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it over, or count it; the first one starts the writer."""
        if self._writer is None:  # no second one: a handler emits one record at a time
            self._writer = threading.Thread(target=self._write, name="proctor-log", daemon=True)
            self._writer.start()
            atexit.register(self.finish)
        lost = f"({self._lost} records were lost before this one) " if self._lost else ""
        line = f"{lost if isinstance(self.formatter, Text) else ''}{self.format(record)}\n"
        try:
            self._waiting.put_nowait(line.encode("utf-8", "replace"))
        except queue.Full:
            self._lost += 1
        else:
            self._lost = 0

    def finish(self) -> None:
        """Write what waits, at most for half a second."""
        try:
            self._waiting.put_nowait(b"")
        except queue.Full:
            return
        if self._writer is not None:
            self._writer.join(_LAST)

    def _write(self) -> None:
        while line := self._waiting.get():
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # somebody set the shared pipe to non-blocking, and it is full
                continue
            except OSError:
                return


def log_to_stderr(environ: Mapping[str, str], *, serves: bool = False) -> str | None:
    """Have what `proctor` logs written to stderr. Returns what is wrong with the variables, None when nothing is.

    Unless the environment says otherwise, a command that `serves` logs from `info` on, and any other warnings; but not those
    about agents, which it shows by itself.
    """
    level, shape = (environ.get(name, "").lower() for name in ("PROCTOR_LOG", "PROCTOR_LOG_FORMAT"))
    handler = Behind(2)
    text = Text("%(asctime)s %(level)s %(name)s: %(message)s")
    handler.setFormatter(Json() if is_json(environ) else text)
    logger = logging.getLogger("proctor")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper() if level in LEVELS else "INFO" if serves else "WARNING")
    if level not in LEVELS and not serves:
        logging.getLogger("proctor.agent").setLevel("ERROR")
    for name, value, known in (("PROCTOR_LOG", level, LEVELS), ("PROCTOR_LOG_FORMAT", shape, FORMATS)):
        if value and value not in known:
            return f"{name} {value!r} is not a choice; accepted: {', '.join(known)}"
    return None
