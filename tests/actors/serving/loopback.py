"""A scripted stand-in for OpenCode's server: a program that speaks its HTTP on loopback.

Sessions live in the folder given, so that a second run finds them, as the real one's do in its database.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

STATE = Path(os.environ["LOOPBACK_STATE"])
PASSWORD = os.environ["OPENCODE_SERVER_PASSWORD"]
KEY = "Basic " + b64encode(f"opencode:{PASSWORD}".encode()).decode()


class Hub:
    """Listeners by directory."""

    def __init__(self) -> None:
        self.listeners: list[tuple[str, queue.Queue[bytes | None]]] = []
        self.directories: dict[str, str] = {}
        self.waiting: dict[str, threading.Event] = {}
        self.replies: dict[str, str] = {}
        self.count = 0

    def tell(self, session: str, kind: str, **properties: Any) -> None:
        frame = {"id": "evt_1fff48e9c001x", "type": kind, "properties": {"sessionID": session, **properties}}
        for directory, listener in list(self.listeners):
            if directory == self.directories.get(session):
                listener.put(json.dumps(frame).encode())

    def number(self) -> int:
        self.count += 1
        return self.count


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the library's
        return

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def _answer(self, verb: str) -> None:
        url = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"null")
        if self.headers.get("authorization") != KEY:
            return self._reply(401, None)
        directory = parse_qs(url.query).get("directory", [""])[0]
        with (STATE / "requests").open("a") as log:
            log.write(f"{verb} {url.path}\n")
        match [verb, *url.path.strip("/").split("/")]:
            case ["GET", "event"]:
                return self._events(directory)
            case ["POST", "session"]:
                return self._open(directory, f"ses_{os.getpid()}_{self.hub.number()}")
            case ["GET", "session", "status"]:
                return self._reply(200, {})
            case ["PATCH", "session", session]:
                return self._find(directory, session)
            case ["POST", "session", session, "prompt_async"]:
                self._reply(204, None)
                threading.Thread(
                    target=self._turn, args=(session, body["parts"][0]["text"]), daemon=True
                ).start()
                return None
            case ["POST", "session", session, "abort"]:
                self.hub.waiting.setdefault(session, threading.Event()).set()
                return self._reply(200, True)
            case ["POST", "permission", request, "reply"]:
                self.hub.replies[request] = body["reply"]
                self.hub.waiting[request].set()
                return self._reply(200, True)
            case ["POST", "global", "dispose"]:
                return self._reply(200, True)
            case _:
                return self._reply(404, {"name": "NotFoundError", "data": {"message": "no such route"}})

    def _reply(self, status: int, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _open(self, directory: str, session: str) -> None:
        (STATE / session).write_text("")
        self._find(directory, session)

    def _find(self, directory: str, session: str) -> None:
        if not (STATE / session).exists():
            fault = {"name": "NotFoundError", "data": {"message": f"Session not found: {session}"}}
            return self._reply(404, fault)
        self.hub.directories[session] = directory
        return self._reply(200, {"id": session, "directory": directory, "version": "1.18.33"})

    def _events(self, directory: str) -> None:
        listener: queue.Queue[bytes | None] = queue.Queue()
        self.hub.listeners.append((directory, listener))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self._put(b'{"id":"evt_0","type":"server.connected","properties":{}}')
        while (frame := listener.get()) is not None:
            self._put(frame)

    def _put(self, frame: bytes) -> None:
        self.wfile.write(b"data: " + frame + b"\n\n")
        self.wfile.flush()

    def _turn(self, session: str, text: str) -> None:
        told = (STATE / session).read_text() + text + "\n"
        (STATE / session).write_text(told)
        hub, number = self.hub, self.hub.number()
        hub.tell(session, "message.updated", info={"id": f"u{number}", "role": "user"})
        hub.tell(session, "session.status", status={"type": "busy"})
        said, reason = f"turn {told.count(chr(10))}: {text}", "stop"
        match text:
            case "die":
                os._exit(9)
            case "cut":
                for _, listener in hub.listeners:
                    listener.put(None)
                hub.listeners.clear()
                time.sleep(0.5)
            case "wait":
                hub.waiting[session] = threading.Event()
                hub.waiting[session].wait()
                fault = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
                hub.tell(session, "session.error", error=fault)
            case "ask":
                said = self._ask(session, f"per_{number}")
            case _:
                pass
        if text != "wait":
            self._say(session, f"m{number}", said, reason)
        hub.tell(session, "session.idle")

    def _ask(self, session: str, request: str) -> str:
        self.hub.waiting[request] = threading.Event()
        self.hub.tell(
            session, "permission.asked", id=request, permission="bash", patterns=["ls"], metadata={}
        )
        self.hub.waiting[request].wait()
        return self.hub.replies[request]

    def _say(self, session: str, message: str, text: str, reason: str) -> None:
        part = {"messageID": message, "id": f"{message}p"}
        tell = self.hub.tell
        tell(session, "message.updated", info={"id": message, "role": "assistant"})
        tell(session, "message.part.updated", part={**part, "type": "text", "text": text, "time": {"end": 1}})
        tell(session, "message.part.updated", part={**part, "type": "step-finish", "reason": reason})


def main() -> None:
    Handler.hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"opencode server listening on http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
