"""A web service with three supervised agents; runs offline: uvicorn examples.fastapi_service:app"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

from proctor import aio

HERE = Path(__file__).parent
AGENTS = [
    aio.scripted(name, HERE / "hello.ndjson", home="private", on_crash="retry")
    for name in ("writer", "reviewer", "translator")
]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aio.open_supervisor(AGENTS, intensity=100, period=60) as sup:
        app.state.sup = sup
        yield


app = FastAPI(lifespan=lifespan)


def agent_of(request: Request, name: str) -> aio.Agent:
    if name not in {spec.id for spec in AGENTS}:
        raise HTTPException(404, f"there is no agent {name!r}")
    return request.app.state.sup.agent(name)


@app.post("/agents/{name}/ask")
async def ask(name: str, prompt: str, request: Request) -> dict[str, object]:
    answer = await agent_of(request, name).ask(prompt, timeout=30)
    return {"text": answer.text, "outcome": answer.outcome, "cost_usd": answer.cost_usd}


@app.exception_handler(aio.AgentError)
async def failed(request: Request, error: aio.AgentError) -> JSONResponse:
    return JSONResponse({"error": str(error), "retry": error.retryable}, error.http_status)


@app.post("/agents/{name}/stream")
async def stream(name: str, prompt: str, request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[str]:
        async with agent_of(request, name).stream(prompt, timeout=30) as turn:
            async for event in turn:
                if isinstance(event, aio.TextDelta):
                    yield event.text

    return StreamingResponse(pieces(), media_type="text/plain")


@app.get("/agents")
async def agents(request: Request) -> dict[str, str]:
    statuses = [await agent_of(request, spec.id).status() for spec in AGENTS]
    return {status.name: status.summary for status in statuses}
