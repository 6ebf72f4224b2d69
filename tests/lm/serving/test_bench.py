"""Loads on clusters: closed forms of one request, laws of many, the same load over TCP, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simcluster.errors import UsageError
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest, offered
from simcluster.lm.load.lengths import fixed, length_of
from simcluster.lm.load.metrics import figures
from simcluster.lm.plan.shape import PRESETS, with_held_weights
from simcluster.lm.serving.bench import BenchTarget, bench_cluster
from simcluster.topology import Topology, load
from tests.support import clusters
from tests.support.queues import mean_number
from tests.support.tiny_models import model_of, write_folder

ALONE = BenchTarget("8b", placement="alone", weights="q4")


@pytest.fixture(scope="module")
def shelf() -> Topology:
    return load("smolcluster")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A decoder of four layers with a context of 32 tokens."""
    return str(write_folder(tmp_path_factory.mktemp("models") / "tiny", model_of(max_position_embeddings=32)))


def test_arrivals_far_apart_have_equal_latencies_and_close_ones_wait(shelf: Topology) -> None:
    apart = [OfferedRequest(100.0 * number, 64, 4) for number in range(3)]
    far = bench_cluster(ALONE, shelf, apart).answers
    assert [one.e2el_s for one in far] == pytest.approx([far[0].e2el_s] * 3, rel=1e-9)
    near = bench_cluster(ALONE, shelf, [replace(one, arrival_s=0.0) for one in apart]).answers
    assert max(one.e2el_s for one in near) > 1.5 * far[0].e2el_s


def test_a_policy_decides_which_replica_gets_a_request() -> None:
    # A long request first, then short ones: the idle second replica gets all of them, or in turn three of five.
    load = [OfferedRequest(1.0 * number, 64, 200 if number == 0 else 2) for number in range(6)]
    pair = Topology.star(2, bandwidth="10 Gbps", latency="50 us", device="mac-mini-m4-pro")

    def second_busy_s(policy: Policy) -> float:
        return bench_cluster(replace(ALONE, placement="replicas", policy=policy), pair, load).cluster.nodes[1].busy_s

    assert second_busy_s("least_loaded") > 1.2 * second_busy_s("round_robin") > 0


def test_a_policy_without_replicas_is_refused(shelf: Topology) -> None:
    with pytest.raises(UsageError, match="none with the placement alone, which has no replicas"):
        bench_cluster(replace(ALONE, policy="round_robin"), shelf, [OfferedRequest(0.0, 8, 1)])


def test_littles_law_holds_for_a_run(shelf: Topology) -> None:
    answers = bench_cluster(ALONE, shelf, offered(1.0, 40, fixed(128), length_of("uniform:1:20", ""))).answers
    counted = mean_number((one.arrival_s, one.end_s) for one in answers)
    assert figures(answers).mean_in_system == pytest.approx(counted, rel=1e-9)
    assert counted > 1.0


def test_the_same_arrivals_give_the_same_run(shelf: Topology) -> None:
    requests = offered(0.5, 20, length_of("uniform:10:300", ""), length_of("geometric:6", ""), seed=5, burstiness=0.3)
    first, again = (bench_cluster(replace(ALONE, placement="pipeline"), shelf, requests).answers for _ in range(2))
    assert first == again


def test_what_never_fits_is_refused_and_the_others_are_answered() -> None:
    # 8b in q4 has 5.41 GB of weights and 262,144 bytes of cache per token: 100 MB hold 381 tokens.
    small = clusters.with_nodes(
        clusters.star(1), device=replace(clusters.IDEAL, flops_per_s=1e12, memory_bandwidth_Bps=1e11)
    )
    weights = with_held_weights(PRESETS["8b"], "q4")
    room = int(weights.layers * weights.layer_bytes + weights.ends_bytes(True, True)) + 100_000_000
    device = small.nodes["n0"].device
    assert device is not None
    small = clusters.with_nodes(small, device=replace(device, memory_bytes=room))
    found = bench_cluster(
        ALONE, small, [OfferedRequest(0.0, 100, 2), OfferedRequest(0.1, 390, 2), OfferedRequest(0.2, 50, 2)]
    )
    assert [one.error for one in found.answers] == ["", "refused", ""]
    assert "390 tokens of prompt" in found.details["refused"]
    with pytest.raises(UsageError, match=r"--placement: found alone .* more memory at n0"):
        bench_cluster(ALONE, small, [OfferedRequest(0.0, 390, 2)])


def lengths_of(answers: list[AnsweredRequest]) -> list[tuple[int, int, str]]:
    return [(one.prompt_tokens, one.output_tokens, one.error) for one in answers]


@pytest.mark.slow
def test_real_numerics_answer_on_simulated_and_on_real_nodes(model: str) -> None:
    requests = [OfferedRequest(0.0, 5, 4), OfferedRequest(0.02, 12, 1), OfferedRequest(0.03, 3, 9)]
    cluster = clusters.star(2)
    real = BenchTarget(model, numerics="real", placement="pipeline")
    simulated = bench_cluster(real, cluster, requests)
    measured = [bench_cluster(replace(real, backend=backend), cluster, requests) for backend in ("sockets", "torch")]
    expected = {id: one.tokens for id, one in simulated.cluster.answers.items()}
    assert len({expected["0"], expected["2"][:4]}) == 2
    for found in (simulated, *measured):
        assert lengths_of(found.answers) == [(5, 4, ""), (12, 1, ""), (3, 9, "")]
        assert {id: one.tokens for id, one in found.cluster.answers.items()} == expected
    for one in (one for found in measured for one in found.answers):
        assert one.arrival_s < one.token_s[0] <= one.token_s[-1] == one.end_s


def test_a_prompt_longer_than_the_models_context_is_refused(model: str) -> None:
    real = BenchTarget(model, numerics="real", placement="alone")
    with pytest.raises(UsageError, match=r"no request that can be answered, expected .* exceed the context of 32"):
        bench_cluster(real, clusters.star(1), [OfferedRequest(0.0, 30, 3)])


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (BenchTarget("9b"), "'9b': no such file and no such name"),
        (BenchTarget("8b", backend="mpi"), "backend: found 'mpi', expected one of sim, sockets, torch"),
        (BenchTarget("8b", numerics="rael"), "did you mean 'real'?"),
        (BenchTarget("8b", backend="sockets"), "real nodes compute"),
        (BenchTarget("8b", backend="torch"), "real nodes compute"),
        (BenchTarget("8b", weights="int9"), "did you mean 'int8'?"),  # type: ignore[arg-type]
        (BenchTarget("8b", placement="tower"), "tower"),
        (BenchTarget("8b", chunk_tokens=0), "--chunk-tokens: found 0, expected a number from 1 to 1,000,000"),
    ],
)
def test_a_wrong_request_is_refused(served: BenchTarget, said: str, shelf: Topology) -> None:
    with pytest.raises(UsageError) as error:
        bench_cluster(served, shelf, [OfferedRequest(0.0, 1, 1)])
    assert said in str(error.value)


def test_prompts_of_more_tokens_than_a_machine_should_hold_are_refused(shelf: Topology) -> None:
    with pytest.raises(UsageError, match="at most 50,000,000 in all"):
        bench_cluster(ALONE, shelf, [OfferedRequest(0.0, 10**6, 1)] * 51)


def test_a_folder_without_the_model_is_refused(tmp_path: Path, shelf: Topology) -> None:
    with pytest.raises(UsageError):
        bench_cluster(BenchTarget(str(tmp_path / "none"), numerics="real"), shelf, [OfferedRequest(0.0, 1, 1)])
