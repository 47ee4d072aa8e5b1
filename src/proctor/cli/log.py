"""The log of the program on stderr, set by `PROCTOR_LOG` and `PROCTOR_LOG_FORMAT`.

A stderr without a reader must not stop agents: records go into a bounded queue and a thread writes them. Records that
find no room are counted, and the count is written with the next one.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Mapping

from proctor.cli.ui.log_format import JsonFormatter, TextFormatter, is_json

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
ROOM = 10_000
"""Records that may wait to be written."""

_LAST = 0.5


class BackgroundHandler(logging.Handler):
    """Log handler that writes to a descriptor in a thread of its own."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._waiting = queue.Queue[bytes](ROOM)
        self._lost = 0
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or count it when the queue is full; the first one starts the writer thread."""
        if self._writer is None:  # no second one: a handler emits one record at a time
            # a daemon thread: one that hangs in a write must not keep the process from its exit
            self._writer = threading.Thread(target=self._write, name="proctor-log", daemon=True)
            self._writer.start()
            atexit.register(self.finish)
        lost = f"({self._lost} records were lost before this one) " if self._lost else ""
        line = f"{lost if isinstance(self.formatter, TextFormatter) else ''}{self.format(record)}\n"
        try:
            # never waits: emit runs in the event loop, and a stderr without a reader would stop every agent
            self._waiting.put_nowait(line.encode("utf-8", "replace"))
        except queue.Full:
            self._lost += 1
        else:
            self._lost = 0

    def finish(self) -> None:
        """Write the queued records, for at most half a second."""
        try:
            # an empty record is the sign to end: no real one is empty, since each has its newline
            self._waiting.put_nowait(b"")
        except queue.Full:
            return
        if self._writer is not None:
            # bounded for the same reason: the reader of stderr may never read again
            self._writer.join(_LAST)

    def _write(self) -> None:
        while line := self._waiting.get():
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another process set the shared pipe to non-blocking, and it is full
                continue
            except OSError:
                return


def log_to_stderr(environ: Mapping[str, str], *, serves: bool = False) -> str | None:
    """Send the records of the logger `proctor` to stderr. Returns an error text for an invalid variable, else None.

    The default level is `info` for a command that `serves`, `warning` for any other. Other commands show warnings about
    agents themselves, so those are not logged.
    """
    level, shape = (environ.get(name, "").lower() for name in ("PROCTOR_LOG", "PROCTOR_LOG_FORMAT"))
    handler = BackgroundHandler(2)
    text = TextFormatter("%(asctime)s %(level)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if is_json(environ) else text)
    logger = logging.getLogger("proctor")
    # replaced, not added: a second call in one process would write each record twice
    logger.handlers = [handler]
    # a root handler of a library would write the record again, and blocking
    logger.propagate = False
    logger.setLevel(level.upper() if level in LEVELS else "INFO" if serves else "WARNING")
    if level not in LEVELS and not serves:
        logging.getLogger("proctor.agent").setLevel("ERROR")
    for name, value, accepted in (("PROCTOR_LOG", level, LEVELS), ("PROCTOR_LOG_FORMAT", shape, FORMATS)):
        if value and value not in accepted:
            return f"{name} {value!r} is not a choice; accepted: {', '.join(accepted)}"
    return None
