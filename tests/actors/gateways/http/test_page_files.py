from __future__ import annotations

import gzip
import re

from proctor.actors.gateways.http.page_files import FOLDER
from tests.actors.gateways.http.serving import served
from tests.actors.gateways.http.test_entrance import TOKEN

LIMIT = 60_000
"""Bytes of the whole page, compressed."""


async def test_the_page_needs_no_token_and_says_who_may_do_what_in_it() -> None:
    async with served(entrance={"token": TOKEN}) as server:
        page = await server.client.get("/")
        scripts = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
        answers = [await server.client.get(f"/{path}") for path in scripts]
        unknown = await server.client.get("/static/../auth.py")
        absent = await server.client.get("/static/none.js")
        written = await server.client.post("/static/app.js")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (
        "default-src 'none'; script-src 'self'; style-src 'self'" in page.headers["content-security-policy"]
    )
    assert "unsafe" not in page.headers["content-security-policy"]
    assert scripts
    assert [answer.status_code for answer in answers] == [200] * len(scripts)
    assert (unknown.status_code, absent.status_code, written.status_code) == (401, 404, 405)


async def test_a_file_is_sent_again_only_when_it_has_changed() -> None:
    async with served() as server:
        first = await server.client.get("/static/app.js", headers={"accept-encoding": "gzip"})
        plain = await server.client.get("/static/app.js", headers={"accept-encoding": "identity"})
        tag = first.headers["etag"]
        same = await server.client.get("/static/app.js", headers={"if-none-match": tag})
        other = await server.client.get("/static/app.js", headers={"if-none-match": 'W/"0"'})
        head = await server.client.head("/static/app.js")
    assert (first.headers["content-encoding"], first.content) == ("gzip", plain.content)
    assert "content-encoding" not in plain.headers
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (other.status_code, head.status_code, head.content) == (200, 200, b"")


async def test_the_page_of_a_server_may_send_requests_to_it_and_no_page_of_another_may() -> None:
    async with served(entrance={"token": TOKEN}) as server:
        own, bearer = f"http://{server.where}", f"Bearer {TOKEN}".encode()
        for origin, status in ((own, 200), ("http://127.0.0.1:1", 403), ("https://evil.example", 403)):
            headers = {b"origin": origin.encode(), b"authorization": bearer}
            response = await server.client.post("/agents/a/interrupt", headers=headers)
            assert response.status_code == status, origin


def test_the_whole_page_is_small() -> None:
    files = [path for path in FOLDER.rglob("*.*") if path.suffix != ".txt"]
    sizes = {path.name: len(gzip.compress(path.read_bytes(), mtime=0)) for path in files}
    assert sum(sizes.values()) <= LIMIT, sizes


def test_the_page_names_each_of_its_modules_so_that_they_come_at_once() -> None:
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert {path.name for path in FOLDER.glob("*.js")} == {*re.findall(r'"static/(\w+\.js)"', text)}


def test_no_file_of_the_page_has_inline_code_or_another_host() -> None:
    for path in FOLDER.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert re.search(r"<style|\son\w+=|style=|<script(?![^>]*\ssrc=)", text) is None
    for path in FOLDER.glob("*.*"):
        found = re.findall(r"https?://[\w.]+", path.read_text(encoding="utf-8"))
        assert {*found} <= {"http://www.w3.org"}, path
