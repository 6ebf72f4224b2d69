"""The setup of a server."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from simcluster.errors import UsageError
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.request import Request
from simcluster.lm.serving.bench import BenchTarget, bench_cluster
from simcluster.lm.serving.desk.request_broker import PendingAnswer, RequestBroker
from simcluster.lm.serving.node_program import SEARCHED
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, PlacementState
from simcluster.lm.serving.start_server import ServingOptions, host, hosted
from simcluster.topology import loads
from tests.lm.models.test_trained import SIZES, folder_of
from tests.support import clusters


def test_a_conversations_next_turn_uses_what_the_one_before_left(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES | {"context": 256})
    setup, _ = hosted(ServingOptions(str(tmp_path), placement="alone"), clusters.star(1))
    first = tuple(range(150))
    # The second turn computes 150 + 20 tokens, less one chunk of 128: the first one 150.
    turns = (Request("0", first, 2), Request("1", (*first, *range(20)), 2, arrival_s=100.0))
    found = answer_all(msgspec.structs.replace(setup, requests=turns), clusters.star(1))
    before_s, after_s = (found.answers[name].ttft_s for name in "01")
    assert before_s is not None
    assert after_s is not None
    assert after_s < before_s


def test_a_backend_that_takes_no_requests_while_it_runs_is_refused_with_those_that_do(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    with pytest.raises(UsageError, match="backend: found 'torch', expected sim or sockets, which serve"):
        hosted(ServingOptions(str(tmp_path), backend="torch"), clusters.star(1))


@pytest.mark.parametrize("chunk", [64, 128, 200])
def test_server_forecast_and_benchmark_cut_a_prompt_alike(chunk: int, tmp_path: Path) -> None:
    # 200 tokens: four pieces, two, or one.
    folder_of(tmp_path, SIZES | {"context": 256})
    cluster = clusters.star(1)
    setup, served = hosted(ServingOptions(str(tmp_path), placement="alone", chunk_tokens=chunk), cluster)
    found = answer_all(msgspec.structs.replace(setup, requests=(Request("0", (5,) * 200, 2),)), cluster)
    benched = bench_cluster(
        BenchTarget(str(tmp_path), numerics="real", chunk_tokens=chunk), cluster, [OfferedRequest(0.0, 200, 2)]
    )
    foretold = served.place(None).predict(200, 2)
    assert foretold is not None
    assert found.answers["0"].ttft_s == pytest.approx(foretold.ttft_s, rel=1e-9)
    assert benched.answers[0].ttft_s == pytest.approx(foretold.ttft_s, rel=1e-9)


def test_a_chunk_without_a_token_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    with pytest.raises(UsageError, match="--chunk-tokens: found 0, expected a number from 1 to 1,000,000"):
        hosted(ServingOptions(str(tmp_path), chunk_tokens=0), clusters.star(1))


def test_nothing_is_predicted_with_guesses(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    wanted = ServingOptions(str(tmp_path), placement="alone")
    (plain, alone), (setup, served) = (hosted(replace(wanted, guesses=guesses), clusters.star(1)) for guesses in (0, 4))
    assert (plain.limits.guesses, setup.limits.guesses) == (0, 4)
    assert alone.place(None).predict(4, 4) is not None
    assert served.place(None).predict(4, 4) is None


def test_a_placement_is_described_as_it_is_in_force(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    file = tmp_path / "placement.yaml"
    file.write_text("kind: replicas\nnodes: [n0, n1, n2]\nprefill: [n1]\n")
    setup, served = hosted(ServingOptions(str(tmp_path), placement=str(file)), clusters.star(3))
    first = served.place(None)
    assert [(part.node, part.role) for part in first.parts] == [("n1", "prefill"), ("n0", "decode"), ("n2", "decode")]
    # Without the node that prefills, the others do both; then one node in a pipeline of two has one layer of three.
    found = served.place(PlacementState(PlacementLayout("replicas", (0, 2), (3, 3)), setup.limits, {1: "killed"}))
    assert [(part.node, part.role, part.layers) for part in found.parts] == [("n0", "", (0, 3)), ("n2", "", (0, 3))]
    assert [(lost.node, lost.why) for lost in found.lost] == [("n1", "killed")]
    split = served.place(PlacementState(PlacementLayout("pipeline", (2, 0), (1, 2)), setup.limits))
    assert [(part.node, part.layers) for part in split.parts] == [("n2", (0, 1)), ("n0", (1, 3))]
    assert (first.unused, found.unused, split.unused) == ((), (), ("n1",))
    assert split.parts[0].cache_bytes * 2 == split.parts[1].cache_bytes
    predicted = [one.predict(5, 5) for one in (found, split)]
    assert predicted[0] != predicted[1]


@pytest.mark.parametrize(
    ("backend", "own", "expected"),
    [
        ("sim", {"device": "raspberry-pi-5"}, ("raspberry-pi-5", "the devices of the topology")),
        ("sockets", {"device": "raspberry-pi-5"}, ("raspberry-pi-5",)),
        ("sockets", {"device": "raspberry-pi-5", "ssh": "pi"}, ()),  # it computes itself
    ],
)
def test_a_placement_names_the_devices_in_the_place_of_which_this_machine_computes(
    backend: str, own: dict[str, str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    folder_of(tmp_path, SIZES)
    document = {
        "nodes": {"a": own, "b": {"flops": "1 GFLOP/s"}},
        "links": [{"between": ["a", "b"], "type": "ethernet-1g"}],
    }
    if "ssh" in own:
        document["nodes"]["a"] = own | {"address": "10.0.0.1"}
    _, served = hosted(ServingOptions(str(tmp_path), backend=backend, placement="pipeline"), loads(document))
    assert served.place(None).predicted_for == expected


def test_a_server_on_a_simulated_cluster_searches_for_garbage_while_it_serves(tmp_path: Path) -> None:
    """A simulated run ends, and searches rarely. A server would keep a few kB of each request for very long."""
    folder_of(tmp_path, SIZES)
    cluster, front, seen = clusters.star(1), RequestBroker(), list[tuple[int, int, int]]()
    setup, _ = hosted(ServingOptions(str(tmp_path), placement="alone"), cluster)

    class Observer:
        def token(self, answer: PendingAnswer) -> None:
            seen.append(gc.get_threshold())

        def end(self, answer: PendingAnswer, at_s: float) -> None:
            """Nothing is noted of it."""

    async def ask() -> None:
        while front.why_not:
            assert not running.done(), running.result()
            await asyncio.sleep(0.001)
        answer = front.ask(Request("0", (1, 2), 2))
        while (await answer.more())[1] is None:
            pass

    before = gc.get_threshold()
    front.observer = Observer()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(host, setup, cluster, front, "sim")
        try:
            asyncio.run(ask())
        finally:
            front.stop()
        running.result()
    assert seen == [SEARCHED] * 2
    assert gc.get_threshold() == before
