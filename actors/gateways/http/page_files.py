"""The files of the web page: `/` and what it loads from `/static`, each with an ETag, compressed for a client that takes that.

They hold no facts of a fleet and so need no token: the page asks the operations for all that it shows, with the token that
is typed into it. It may load from and connect to its own server only (CSP).
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path

import attrs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

FOLDER = Path(__file__).with_name("page")
START = "index.html"
MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",  # kept, and asked for again by its ETag: after an update no file is an old one
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}


@attrs.define
class PageFile:
    """One file, with its tag; compressed once, when the first client takes that."""

    data: bytes
    media_type: str
    tag: str
    _compressed: bytes | None = None

    @property
    def compressed(self) -> bytes:
        """Its data, compressed."""
        if self._compressed is None:
            self._compressed = gzip.compress(self.data, mtime=0)
        return self._compressed


def page_routes() -> tuple[BaseRoute, ...]:
    """The routes of the page, which is read from the disk now."""
    files = {path.relative_to(FOLDER).as_posix(): _read(path) for path in FOLDER.rglob("*.*")}

    async def serve(request: Request) -> Response:
        file = files.get(request.path_params.get("path", START))
        if file is None:
            raise HTTPException(404)
        return _response(file, request)

    return Route("/", serve), Route("/static/{path:path}", serve)


def _read(path: Path) -> PageFile:
    data = path.read_bytes()
    return PageFile(data, MEDIA_TYPES[path.suffix], f'W/"{hashlib.sha256(data).hexdigest()[:16]}"')


def _response(file: PageFile, request: Request) -> Response:
    headers = {**HEADERS, "etag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.data, headers=headers, media_type=file.media_type)
    return Response(
        file.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type
    )
