"""An application asked without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx


def answer_of(
    app: Any, url: str, method: str, path: str, content: Any, headers: Mapping[str, str | None]
) -> httpx.Response:
    """Return the answer of *app* at *url* to *content*, bytes or what JSON can say; headers of None are left out."""

    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url) as client:
            given = {"Content-Type": "application/json"} | {name.replace("_", "-"): headers[name] for name in headers}
            sent = {name: value for name, value in given.items() if value is not None}
            body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
            return await client.request(method, path, content=body, headers=sent)

    return asyncio.run(call())
