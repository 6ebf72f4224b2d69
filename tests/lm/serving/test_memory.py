"""The memory of a server: a request leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from simcluster.lm.request import Request
from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.lm.serving.start_server import ServingOptions, host, hosted
from simcluster.lm.serving.web.app import make_app
from simcluster.runs import spans
from tests.lm.models.test_trained import SIZES, folder_of
from tests.lm.serving.scripted import PATIENT, a_site, engine
from tests.support import clusters

AT_ONCE, WARM_UP, COUNTED = 4, 300, 600


async def answered(front: RequestBroker, number: int) -> None:
    answer = front.ask(Request(str(number), (1 + number % 50, 2, 3), 2))
    while (await answer.more())[1] is None:
        pass


async def blocks_left(front: RequestBroker) -> int:
    """Return the growth, in blocks of Python's allocator, over COUNTED requests after WARM_UP others."""
    while front.why_not:
        await asyncio.sleep(0.001)
    for first in range(0, WARM_UP + COUNTED, AT_ONCE):
        if first == WARM_UP:
            gc.collect()
            before = sys.getallocatedblocks()
        await asyncio.gather(*(answered(front, first + number) for number in range(AT_ONCE)))
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "nodes"), [("pipeline", 3), ("replicas", 2)])
def test_a_request_leaves_nothing_in_a_server_and_its_simulated_nodes(
    placement: str, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass takes two spans on a node, each a tuple and two floats.

    Two passes per four requests on three nodes, kept, would be over 5,000 blocks; caches of the interpreter grow by
    some hundreds.
    """
    monkeypatch.setattr(spans, "AT_ONCE", 1)  # an Adder collects that many spans before it sums them up
    folder_of(tmp_path, SIZES)
    cluster, front = clusters.star(nodes), RequestBroker()
    setup, _ = hosted(ServingOptions(str(tmp_path), placement=placement), cluster)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(host, setup, cluster, front, "sim")
        try:
            left = asyncio.run(blocks_left(front))
        finally:
            front.stop()
        record = running.result()
    assert left < 3 * COUNTED
    assert [node.spans for node in record.nodes] == [[]] * nodes


def test_a_request_leaves_nothing_in_the_http_application() -> None:
    """Streams and whole answers, with several choices and rules; each has over a hundred objects while it lasts."""

    async def ask(count: int) -> int:
        transport = httpx.ASGITransport(make_app(a_site(made.front), {"localhost"}))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENT) as client:
            for number in range(WARM_UP + count):
                if number == WARM_UP:
                    gc.collect()
                    before = sys.getallocatedblocks()
                body = {"model": "tiny", "prompt": f"{number}", "n": 2, "min_p": 0.1, "stream": number % 2 == 0}
                answer = await client.post("/v1/completions", json=body)
                assert answer.status_code == 200
                made.seen.clear()
            del answer
        gc.collect()
        return sys.getallocatedblocks() - before

    with engine() as made:
        assert asyncio.run(ask(300)) < 3 * 300
