"""The stream of an engine's load for the page: the latest state, not every one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from simcluster.lm.engine.desk import EngineLoad
from simcluster.lm.serving.desk.front import NOTHING, RequestBroker
from simcluster.lm.serving.web import chunks
from simcluster.lm.serving.web.errors import ApiError
from simcluster.lm.serving.web.reply import KEEP_ALIVE_S, STREAM
from simcluster.lm.serving.web.served import Site
from simcluster.web.requests import Receive, Scope, Send

MOST_PAGES: Final = 32
PERIOD_S: Final = 0.05


class LoadStream(Response):
    """Sends the loads of *site* until the client leaves. Raises ApiError if too many pages are open."""

    def __init__(self, site: Site) -> None:
        super().__init__(None)
        if site.pages >= MOST_PAGES:
            raise ApiError(503, f"{site.pages} pages are open, the most that are served")
        self._site, self._front = site, site.front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._site.pages += 1
        sending = asyncio.create_task(self._send(send))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._site.pages -= 1
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def told(load: EngineLoad) -> None:
            with suppress(RuntimeError):  # the server's loop has closed
                loop.call_soon_threadsafe(changed.set)

        stop = self._front.watch(told)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(STREAM)})
            changed.set()
            while True:
                event = chunks.KEEP_ALIVE
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                    event = chunks.event(state(self._front))
                changed.clear()
                await send({"type": "http.response.body", "body": event, "more_body": True})
                await asyncio.sleep(PERIOD_S)
        finally:
            stop()


def state(front: RequestBroker) -> dict[str, Any]:
    """Return the latest load; zeros before the first. With another *engine*, the placement may be another one."""
    load = front.last_load or NOTHING
    waiting = max(load.waiting, front.open_requests - load.running)
    more = {"waiting": waiting, "prefilled": front.counts["prefilled"], "engine": front.engines}
    return asdict(load) | more | {"at_s": front.now(), "lag_s": front.lag_s}
