"""The times of a long answer, from a few of its tokens, are those of the whole simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import simcluster
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import Request
from simcluster.lm.serving import extended
from simcluster.lm.serving.extended import GrowthLine, answer_timed
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import Device, Topology
from simcluster.topology.model.conditions import Jitter
from tests.lm.serving import timed
from tests.support import clusters

PIPELINE = PlacementLayout("pipeline", (1, 0, 2), (1, 2, 3))
PROMPT, OUTPUT = 20, 40


def asked(
    layout: PlacementLayout = PIPELINE, output: int = OUTPUT, shape: ModelShape = timed.SHAPE, guesses: int = 0
) -> Setup:
    limits = EngineLimits(blocks=1000, context=10_000, vocabulary=shape.vocabulary, guesses=guesses)
    return Setup("", shape, "f32", "none", layout, limits, False, requests=(Request("0", (0,) * PROMPT, output),))


def simulated_requests(monkeypatch: pytest.MonkeyPatch, setup: Setup, cluster: Topology) -> list[tuple[int, int]]:
    """Return the tokens of prompt and answer of each simulation of `answer_timed`."""
    found = []

    def counted(short: Setup, topology: Topology, *, seed: int) -> ServingResult:
        found.append((len(short.requests[0].prompt), short.requests[0].max_tokens))
        return answer_all(short, topology, seed=seed)

    monkeypatch.setattr(extended, "answer_all", counted)
    answer_timed(setup, cluster)
    return found


def test_a_line_adds_its_steps() -> None:
    # Steps of 2, 3, 4 and 5 after 10.
    line = GrowthLine(10.0, 2.0, 5.0, 5)
    assert [line.step(token) for token in (2, 3, 4, 5)] == [2.0, 3.0, 4.0, 5.0]
    assert [line.after(tokens) for tokens in (1, 2, 3, 4, 5)] == [10.0, 12.0, 15.0, 19.0, 24.0]


@pytest.mark.parametrize(
    "layout",
    [PlacementLayout("alone", (1,), (6,)), PIPELINE, PlacementLayout("tensor", (0, 1), (6, 6))],
    ids=lambda layout: layout.kind,
)
def test_extended_times_are_those_of_the_whole_simulation(layout: PlacementLayout) -> None:
    setup, cluster = asked(layout), timed.topology()
    found, whole = answer_timed(setup, cluster), answer_all(setup, cluster)
    assert len(found.record.nodes[layout.ranks[0]].answers) < OUTPUT  # it simulated fewer tokens
    assert found.answers["0"].times_s == pytest.approx(whole.answers["0"].times_s, rel=1e-9)
    assert replace(found.answers["0"], times_s=()) == replace(whole.answers["0"], times_s=())
    assert found.elapsed_s == pytest.approx(whole.elapsed_s, rel=1e-9)
    for node, expected in zip(found.nodes, whole.nodes, strict=True):
        assert node.busy_s == pytest.approx(expected.busy_s, rel=1e-9)
        assert node.sent_bytes == pytest.approx(expected.sent_bytes, abs=2 * OUTPUT)  # some digits of reports
        assert replace(node, busy_s=0.0, sent_bytes=0) == replace(expected, busy_s=0.0, sent_bytes=0)


def test_the_prompt_of_the_last_simulations_ends_before_the_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    # The last of 40 tokens has the prompt's 20 and 38 others before the token that it comes from.
    near, far = [(20, tokens) for tokens in (1, 2, 3)], [(58, tokens) for tokens in (1, 2)]
    assert simulated_requests(monkeypatch, asked(), timed.topology()) == near + far


@pytest.mark.parametrize(
    ("output", "guesses"),
    [(9, 0), (OUTPUT, 2)],  # 3 + 2 prompts and 4 tokens are as many batches as a prompt and 8 tokens
)
def test_short_answers_and_guesses_are_simulated_whole(
    output: int, guesses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = asked(output=output, guesses=guesses)
    assert simulated_requests(monkeypatch, setup, timed.topology()) == [(PROMPT, output)]


def test_a_cluster_with_chance_is_simulated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = timed.topology()
    links = tuple(replace(link, jitter=Jitter(1e-3)) for link in cluster.links)
    assert simulated_requests(monkeypatch, asked(), replace(cluster, links=links)) == [(PROMPT, OUTPUT)]


def test_faults_are_simulated_whole() -> None:
    setup, cluster = asked(), timed.topology()
    with simcluster.faults() as plan:
        plan.slow("n0", factor=3.0, at_s=answer_all(setup, cluster).elapsed_s / 2)
        found, whole = answer_timed(setup, cluster), answer_all(setup, cluster)
    assert found.answers == whole.answers


def test_a_bend_in_the_times_is_noticed() -> None:
    """Of 8 KV heads, the cache is read more slowly than it is multiplied, and weights are not."""
    shape = ModelShape("small", 6, 64, 8, 8, 8, 128, 512, True, 2.0)
    # A weight has 2 bytes and 2 FLOPs; a token of context has 512 bytes and 256 FLOPs in a layer.
    cluster = clusters.star(2, 1e7, 1e-3, n0=Device("d", 0.9e9, 1e9))
    setup = asked(PlacementLayout("alone", (0,), (6,)), 100, shape)
    whole = answer_all(setup, cluster).answers["0"]
    steps_s = [b - a for a, b in pairwise(whole.times_s)]
    rises_s = [b - a for a, b in pairwise(steps_s)]
    assert rises_s[-1] > 1.5 * rises_s[0]  # 512 / 1e9 and 256 / 0.9e9
    assert answer_timed(setup, cluster).answers["0"] == whole
