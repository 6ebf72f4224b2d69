"""Nodes lost in the middle of answers: the others place the model again, and the tokens are those of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import simcluster
from simcluster.errors import PeerLost
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request, rest
from simcluster.lm.serving import program
from simcluster.lm.serving.replacement import recovery_of
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import Topology, loads
from tests.lm.models.test_trained import SIZES, folder_of
from tests.lm.serving.test_equality import PROMPTS, WARM, ruled, tokens_of
from tests.support.levels import sample_of
from tests.support.processes import forked_nodes

LAYOUTS = {
    "alone": PlacementLayout("alone", (1,), (3,)),
    "pipeline and a spare": PlacementLayout("pipeline", (0, 1), (1, 2)),
    "pipeline": PlacementLayout("pipeline", (2, 0, 1), (1, 1, 1)),
    "tensor": PlacementLayout("tensor", (0, 1, 2), (3, 3, 3)),
    "replicas": PlacementLayout("replicas", (0, 1, 2), (3, 3, 3)),
    "one prefills": PlacementLayout("replicas", (0, 1, 2), (3, 3, 3), prefill=1),
}
CLUSTER = Topology.star(3)
NAMES = CLUSTER.workers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("gpt")
    folder_of(path, SIZES)
    return str(path)


def setup_of(model: str, layout: PlacementLayout, requests: Sequence[Request], backend: str = "sim") -> Setup:
    shape = open_model(model).shape
    limits = EngineLimits(100, shape.context, shape.vocabulary, block_tokens=4, chunk_tokens=4)
    recovery = recovery_of(CLUSTER, Lengths(8, 16), 3)
    return Setup(
        model, shape, "f32", "real", layout, limits, backend != "sim", requests=tuple(requests), recovery=recovery
    )


def requests(count: int = 3) -> list[Request]:
    return [Request(str(i), tuple(prompt), 12 + i, WARM) for i, prompt in enumerate(PROMPTS[:count])]


def hit(setup: Setup, kind: str, rank: int, **when: float) -> ServingResult:
    """Answer everything while a fault of that *kind* hits a node."""
    with simcluster.faults() as plan:
        getattr(plan, kind)(NAMES[rank], **when)
        return answer_all(setup, CLUSTER)


@pytest.fixture(scope="module")
def expected(model: str) -> dict[str, tuple[int, ...]]:
    return tokens_of(answer_all(setup_of(model, LAYOUTS["alone"], requests()), CLUSTER))


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_an_answer_continues_with_the_same_tokens_on_the_nodes_that_are_left(
    name: str, lost: int, model: str, expected: Any
) -> None:
    setup = setup_of(model, LAYOUTS[name], requests())
    whole = answer_all(setup, CLUSTER)
    at_s = whole.answers["2"].times_s[5]  # in the middle of every answer
    found = hit(setup, "crash", lost, at_s=at_s)
    assert tokens_of(found) == expected
    assert list(found.lost) == [NAMES[lost]]
    if lost in LAYOUTS[name].ranks:
        assert found.answers["2"].times_s[-1] > whole.answers["2"].times_s[-1]  # the caches were filled again
        assert NAMES[lost] not in [use.node for use in found.nodes]


@pytest.mark.parametrize("name", ["pipeline", "tensor", "replicas", "one prefills"])
def test_after_a_loss_the_rest_of_an_answer_obeys_the_same_sampling_rules(name: str, model: str) -> None:
    """Penalties count the tokens from before the loss, which are then in the prompt of another node."""
    setup = setup_of(model, LAYOUTS[name], ruled(requests()))
    whole = answer_all(setup, CLUSTER)
    for lost in (0, 2):
        found = hit(setup, "crash", lost, at_s=whole.answers["1"].times_s[4])
        assert tokens_of(found) == tokens_of(whole)
        assert list(found.lost) == [NAMES[lost]]


@pytest.mark.parametrize("kind", ["crash", "hang", "restart"])
@pytest.mark.parametrize("name", ["replicas", "one prefills"])
def test_replicas_that_have_no_request_left_replace_the_first_node(
    name: str, kind: str, model: str, expected: Any
) -> None:
    """The only request is on the first node, and the others have the end of their orders from the beginning."""
    setup = setup_of(model, LAYOUTS[name], requests(1))
    times_s = answer_all(setup, CLUSTER).answers["0"].times_s
    for at_s in (times_s[2], (times_s[-2] + times_s[-1]) / 2):
        found = hit(setup, kind, 0, at_s=at_s, **({"after_s": times_s[-1]} if kind == "restart" else {}))
        assert tokens_of(found) == {"0": expected["0"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lost", "count"),
    sample_of(
        [
            ("pipeline", 0, 3),
            ("pipeline", 2, 3),
            ("pipeline and a spare", 1, 3),
            ("tensor", 1, 3),
            ("replicas", 0, 1),
            ("one prefills", 0, 3),
            ("replicas", 0, 3),
        ]
    ),
)
def test_real_processes_continue_an_answer_when_one_of_them_is_killed(
    name: str, lost: int, count: int, model: str, expected: Any
) -> None:
    shown: dict[str, list[int]] = {}
    answers = {str(i): expected[str(i)] for i in range(count)}

    def show(request: str, token: int) -> None:
        if not shown:
            for node in forked_nodes(len(NAMES))[lost : lost + 1]:
                node.kill()  # which no plan knows of
        shown.setdefault(request, []).append(token)

    found, factor = None, 5.0
    while found is None or not found.lost:  # on a busy machine a run may end before its first token is shown
        shown.clear()
        factor *= 4
        with simcluster.faults() as plan:
            for node in NAMES:
                plan.slow(node, at_s=0.0, factor=factor)
            setup = setup_of(model, LAYOUTS[name], requests(count), "sockets")
            found = answer_all(setup, CLUSTER, backend="sockets", on_token=show)
        assert tokens_of(found) == answers
        assert {request: tuple(tokens) for request, tokens in shown.items()} == answers
    assert list(found.lost) == [NAMES[lost]]
    if name == "replicas" and count == 3:  # the other two prompts are computed once, the first one and its tokens again
        assert found.prefilled <= sum(map(len, PROMPTS)) + len(expected["0"])


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_replicas_that_are_left_prefill_the_requests_of_the_lost_one_alone(
    lost: int, model: str, expected: Any
) -> None:
    """Each of three replicas has one request. The lost one's prompt, and its tokens so far, are all that comes again:
    its tokens are known at the desk, unless that is lost as well.
    """
    setup = setup_of(model, LAYOUTS["replicas"], requests())
    at_s = answer_all(setup, CLUSTER).answers["2"].times_s[5]
    found = hit(setup, "crash", lost, at_s=at_s)
    assert tokens_of(found) == expected
    known = sum(time_s <= at_s for time_s in found.answers[str(lost)].times_s) if lost else 0
    own = sum(len(prompt) for place, prompt in enumerate(PROMPTS) if place != lost)
    assert found.prefilled == own + len(PROMPTS[lost]) + known


def test_a_returning_replica_makes_no_other_prefill_again(model: str, expected: Any) -> None:
    setup = setup_of(model, LAYOUTS["replicas"], requests())
    times_s = answer_all(setup, CLUSTER).answers["2"].times_s
    found = hit(setup, "restart", 1, at_s=times_s[2], after_s=times_s[2])
    assert tokens_of(found) == expected
    assert [use.node for use in found.nodes] == list(NAMES)
    known = sum(time_s <= times_s[2] for time_s in found.answers["1"].times_s)
    assert found.prefilled == sum(map(len, PROMPTS)) + known  # the second prompt's first time is lost with its node


def test_a_returning_replica_loads_the_model_before_the_others_wait_for_it(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_s, made = list[float](), program.part_of

    def noted(*given: Any) -> Any:
        loaded_s.append(asyncio.get_running_loop().time())
        return made(*given)

    monkeypatch.setattr(program, "part_of", noted)
    setup = setup_of(model, LAYOUTS["replicas"], requests())
    at_s = answer_all(setup, CLUSTER).answers["2"].times_s[2]
    loaded_s.clear()
    hit(setup, "restart", 1, at_s=at_s, after_s=at_s)
    assert loaded_s == [0.0, 0.0, 0.0, 2 * at_s]  # and the others load nothing again


def test_an_engine_on_one_node_goes_on_when_a_node_without_a_part_is_lost(model: str, expected: Any) -> None:
    setup = setup_of(model, LAYOUTS["alone"], requests())
    whole = answer_all(setup, CLUSTER)
    found = hit(setup, "crash", 2, at_s=whole.answers["2"].times_s[5])
    assert tokens_of(found) == expected
    assert found.prefilled == whole.prefilled == sum(map(len, PROMPTS))


@pytest.mark.parametrize("returns", [False, True])
def test_arrivals_count_from_the_beginning_on_a_first_node_that_came_late(returns: bool, model: str) -> None:
    early, late = Request("0", (7, 8, 9), 20, WARM), Request("1", (60, 61), 4, WARM, arrival_s=0.5)
    setup = setup_of(model, LAYOUTS["alone"], [early, late])
    whole = answer_all(setup, CLUSTER)
    at_s = whole.answers["0"].times_s[10]
    # It takes its part again, or a node without a part takes over.
    found = hit(setup, "restart" if returns else "crash", 1, at_s=at_s, **({"after_s": at_s} if returns else {}))
    assert found.answers["1"].times_s == pytest.approx(whole.answers["1"].times_s)  # long after the loss: on idle nodes


@pytest.mark.slow
def test_a_returning_node_takes_its_part_again(model: str, expected: Any) -> None:
    setup = setup_of(model, LAYOUTS["pipeline"], requests())
    times_s = answer_all(setup, CLUSTER).answers["2"].times_s
    found = hit(setup, "restart", 1, at_s=times_s[2], after_s=times_s[2])
    assert tokens_of(found) == expected
    assert not found.lost
    assert [(use.node, use.layers) for use in found.nodes] == [("n2", 1), ("n0", 1), ("n1", 1)]


def test_what_is_left_of_a_request_keeps_its_last_place() -> None:
    asked = Request("0", (1, 2), 5, WARM, ends=frozenset({9}), arrival_s=3.0)
    assert rest(asked, ()) == asked
    assert rest(asked, (7, -1)) == Request("0", (1, 2, 7, 0), 3, WARM, ends=frozenset({9}), arrival_s=3.0)
    assert rest(asked, (7, 9)) == "stop"
    assert rest(asked, (7,) * 5) == "length"


def test_without_room_for_the_model_the_loss_is_named(model: str) -> None:
    # A layer takes 12 x 48 x 48 x 4 B = 111 kB, embeddings or logits 49 kB: one layer fits each node, two do not.
    cluster = Topology.star(3)
    for node in cluster.document["nodes"].values():
        if node.get("kind") != "switch":
            node["memory"] = "200 kB"
    cluster = loads(cluster.document)
    setup = setup_of(model, LAYOUTS["pipeline"], requests())
    assert setup.recovery is not None
    setup = replace(setup, recovery=recovery_of(cluster, Lengths(8, 16), 3))
    at_s = answer_all(setup, cluster).answers["2"].times_s[3]
    with simcluster.faults() as plan:
        plan.crash("n1", at_s=at_s)
        with pytest.raises(PeerLost, match=r"rank 1 \(n1\) is lost: crashed by the fault plan"):
            answer_all(setup, cluster)
