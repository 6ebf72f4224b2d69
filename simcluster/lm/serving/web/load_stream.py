"""The stream of an engine's load for the page. It may skip loads, but sends the latest one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from simcluster.lm.engine.request_source import EngineLoad
from simcluster.lm.serving.desk.request_broker import NOTHING, RequestBroker
from simcluster.lm.serving.web import chunks
from simcluster.lm.serving.web.errors import ApiError
from simcluster.lm.serving.web.reply import KEEP_ALIVE_S, STREAM
from simcluster.lm.serving.web.served_model import Site
from simcluster.web.requests import Receive, Scope, Send

MOST_PAGES: Final = 32
PERIOD_S: Final = 0.05


class LoadStream(Response):
    """A response that streams the load of *site* until the client leaves.

    Raise ApiError if too many pages are open.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(None)
        if site.pages >= MOST_PAGES:
            raise ApiError(503, f"{site.pages} pages are open, the most that are served")
        self._site = site
        self._front = site.front

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
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def notify(load: EngineLoad) -> None:
            with suppress(RuntimeError):  # the server's loop has closed
                loop.call_soon_threadsafe(changed.set)

        stop = self._front.watch(notify)
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
                await asyncio.sleep(PERIOD_S)  # engines change faster than a page can show
        finally:
            stop()


def state(front: RequestBroker) -> dict[str, Any]:
    """Return the latest load as JSON-compatible values; zeros before the first one.

    If the number *engine* has changed, the placement may have changed as well.
    """
    load = front.last_load or NOTHING
    waiting = max(load.waiting, front.open_requests - load.running)
    more = {"waiting": waiting, "prefilled": front.counts["prefilled"], "engine": front.engines}
    return asdict(load) | more | {"at_s": front.now(), "lag_s": front.lag_s}
