"""A small model that guesses: the same tokens, its time and its memory, and models that cannot guess for each other."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.inference.models.open import open_model
from simcluster.inference.plan.shape import Shape
from simcluster.inference.plan.times import Lengths
from simcluster.inference.request import Request, Sampling
from simcluster.serving.asked import Asked, setup_of
from simcluster.serving.guessing import Guessing
from simcluster.serving.on_cluster import shape_of_architecture
from simcluster.serving.placing import held_bytes, layout_of, limits_of, within
from simcluster.serving.replan import recovery_of
from simcluster.serving.run import Answers, answer_all
from simcluster.serving.setup import Layout, Setup, SmallModel
from simcluster.topology import Device, Topology
from simcluster.topology.model.duration import expected_s
from tests.inference.models import tiny
from tests.inference.models.test_hugging_face import write
from tests.inference.models.test_trained import SIZES, folder_of
from tests.serving import timed
from tests.serving.test_equality import LAYOUTS, WARM, answered, requests, tokens_of
from tests.support import clusters

SMALL = Shape("tiny", 1, 32, 4, 4, 8, 64, 512, True, 2.0)


def gpt(folder: Path, **changed: Any) -> str:
    folder.mkdir()
    folder_of(folder, SIZES | changed)
    return str(folder)


def small(model: str) -> SmallModel:
    architecture = open_model(model).architecture
    return SmallModel(model, shape_of_architecture(architecture, "f32", "small"), architecture.context)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return gpt(tmp_path_factory.mktemp("models") / "large")


@pytest.fixture(scope="module")
def drafts(model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SmallModel]:
    """The model itself, which is always right; another one; and one with room for 12 tokens alone."""
    home = tmp_path_factory.mktemp("drafts")
    found = {"itself": model, "other": gpt(home / "other", layers=1), "short": gpt(home / "short", context=12)}
    return {name: small(path) for name, path in found.items()}


@pytest.fixture(scope="module")
def expected(model: str) -> dict[Sampling, Any]:
    return {how: tokens_of(answered(model, LAYOUTS["alone"], requests(how))) for how in (Sampling(), WARM)}


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "drawn"])
@pytest.mark.parametrize("draft", ["itself", "other", "short"])
@pytest.mark.parametrize("name", ["alone", "three stages", "two shards", "replicas", "one prefills"])
def test_a_draft_changes_no_token(
    name: str, draft: str, sampling: Sampling, model: str, drafts: Any, expected: Any
) -> None:
    batches = 3 if name == "three stages" else 1
    found = answered(model, LAYOUTS[name], requests(sampling), draft=drafts[draft], guesses=3, batches=batches)
    assert tokens_of(found) == expected[sampling]
    assert found.proposed > 0
    if draft == "itself":
        assert found.accepted == found.proposed
    if draft == "other":
        assert found.accepted < found.proposed


@pytest.mark.parametrize("draft", ["itself", "other"])
@pytest.mark.parametrize("name", ["three stages", "two shards", "replicas"])
def test_real_processes_with_a_draft_give_the_same_tokens(
    name: str, draft: str, model: str, drafts: Any, expected: Any
) -> None:
    found = answered(model, LAYOUTS[name], requests(), "sockets", drafts[draft], guesses=3)
    assert tokens_of(found) == expected[WARM]
    assert found.proposed > 0
    assert (found.accepted == found.proposed) == (draft == "itself")


@pytest.mark.parametrize("draft", ["itself", "other"])
def test_a_draft_reads_a_preempted_sequence_again(draft: str, model: str, drafts: Any, expected: Any) -> None:
    # Room for 24 tokens; the requests need 13, 11 and 19 of them at their end, in blocks of 4.
    found = answered(model, LAYOUTS["two stages"], requests(), draft=drafts[draft], guesses=3, blocks=6)
    assert tokens_of(found) == expected[WARM]
    assert found.preemptions > 0
    # On the first node, 1 of the 3 layers and those of the draft: never more than 24 tokens of each.
    layers = 1 + drafts[draft].shape.layers
    assert found.nodes[0].cache_bytes <= 24 * layers * 2 * SIZES["width"] * 4


def test_a_prompt_with_a_known_beginning_gets_the_same_tokens_with_a_draft(model: str, drafts: Any) -> None:
    apart = [Request(str(i), (*range(8), 50 + i), 9, WARM, arrival_s=10.0 * i) for i in range(3)]
    plain = answered(model, LAYOUTS["three stages"], apart)
    found = answered(model, LAYOUTS["three stages"], apart, draft=drafts["itself"], guesses=3)
    assert tokens_of(found) == tokens_of(plain)
    assert found.accepted == found.proposed > 0


def after_a_loss(model: str, draft: SmallModel, layout: Layout, size: int, lost: int) -> Answers:
    """Return the answers of *layout* on *size* nodes, of which n*lost* crashes while the last request decodes."""
    cluster = Topology.star(size)
    architecture = open_model(model).architecture
    shape = shape_of_architecture(architecture, "f32", "gpt")
    limits = limits_of(layout, cluster, shape, architecture.context, block_tokens=4, chunk_tokens=4, guesses=3)
    setup = Setup(
        model, shape, "f32", "real", layout, limits, False, requests=tuple(requests()),
        recovery=recovery_of(cluster, Lengths(8, 16), 3), draft=draft,
    )  # fmt: skip
    at_s = answer_all(setup, cluster).answers["2"].times_s[4]
    with simcluster.faults() as plan:
        plan.crash(f"n{lost}", at_s=at_s)
        found = answer_all(setup, cluster)
    assert list(found.lost) == [f"n{lost}"]
    return found


@pytest.mark.parametrize("lost", [0, 1])
def test_after_a_loss_the_draft_guesses_at_the_next_first_node(
    lost: int, model: str, drafts: Any, expected: Any
) -> None:
    found = after_a_loss(model, drafts["other"], LAYOUTS["two stages"], 3, lost)
    assert tokens_of(found) == expected[WARM]
    assert found.proposed > 0


@pytest.mark.parametrize("lost", [0, 1])
def test_after_a_loss_a_node_that_only_prefilled_guesses_with_the_draft(
    lost: int, model: str, drafts: Any, expected: Any
) -> None:
    found = after_a_loss(model, drafts["other"], Layout("replicas", (0, 1), (3, 3), prefill=1), 2, lost)
    assert tokens_of(found) == expected[WARM]
    (left,) = [use for use in found.nodes if use.node != f"n{lost}"]
    alone = answered(model, LAYOUTS["alone"], requests())
    assert left.weight_bytes > alone.nodes[0].weight_bytes  # those of the draft, too
    assert found.proposed > 0


def test_right_guesses_are_counted_and_come_together(model: str, drafts: Any) -> None:
    # After the prompt's token 13 are left: 4 guesses give 5, 4 give 5, and for the last 3 tokens 2 are guessed.
    request = [Request("0", (7, 8, 9), 14, WARM)]
    found = answered(model, LAYOUTS["alone"], request, draft=drafts["itself"], guesses=4, chunk_tokens=64)
    assert (found.proposed, found.accepted) == (10, 10)
    times_s = found.answers["0"].times_s
    assert [times_s.count(at_s) for at_s in sorted({*times_s})] == [1, 5, 5, 3]


def spent_s(device: Device, shape: Shape, layers: int, tokens: int, context: int, rows: int) -> float:
    """Return the seconds of *tokens* after *context* others, and of the logits of the last *rows*."""
    layers_s = expected_s(device, shape.layers_cost(layers, [(1, tokens, context)]))
    return layers_s + (expected_s(device, shape.head_cost(rows)) if rows else 0.0)


def test_passes_with_right_guesses_take_the_time_of_the_closed_form() -> None:
    """Per pass k tokens of the small model, the first after all that it has not read, and k + 1 rows of the large one:
    Leviathan et al. 2023, section 3.3, with the costs of these shapes.
    """
    prompt, k, passes = 20, 3, 4
    request = Request("0", (0,) * prompt, 1 + passes * (k + 1))
    draft = SmallModel("", SMALL, 10_000, 1.0)
    found = timed.run(Layout("alone", (1,), (6,)), [request], draft=draft, guesses=k)
    times_s = sorted({*found.answers["0"].times_s})
    assert len(times_s) == 1 + passes
    device = timed.DEVICES["n1"]
    known, read, forms_s = prompt + 1, 0, []
    for _ in range(passes):
        small_s = spent_s(device, SMALL, 1, known - read, read, 1)
        small_s += sum(spent_s(device, SMALL, 1, 1, known + i, 1) for i in range(k - 1))
        forms_s.append(small_s + spent_s(device, timed.SHAPE, 6, k + 1, known - 1, k + 1))
        read = known + k - 1  # the last guess is not read
        known += k + 1
    assert [b - a for a, b in pairwise(times_s)] == pytest.approx(forms_s, rel=1e-9)
    assert found.proposed == found.accepted == k * passes


def test_drawn_guesses_give_the_tokens_per_pass_of_the_formula() -> None:
    # Leviathan et al. 2023, equation 1: (1 - a^(k + 1)) / (1 - a) = 2.77 tokens per pass for a = 0.7 and k = 4. The
    # standard deviation of a pass is 1.6, and 0.05 for the mean of 1,080 passes, so 0.15 is three of them.
    draft = SmallModel("", SMALL, 10_000, 0.7)
    found = timed.run(Layout("alone", (0,), (6,)), [Request("0", (0,), 3001)], draft=draft, guesses=4)
    passes = len({*found.answers["0"].times_s}) - 1
    assert 3000 / passes == pytest.approx((1 - 0.7**5) / 0.3, abs=0.15)
    again = timed.run(Layout("alone", (0,), (6,)), [Request("0", (0,), 3001)], draft=draft, guesses=4)
    assert again.answers == found.answers


def test_the_first_node_has_less_room_by_the_draft_and_is_refused_without() -> None:
    # 6 layers of `small` and 1 of `tiny`: keys and values of 4 heads of 8 numbers of 4 B are 256 B per layer and token.
    layout, shape, draft = Layout("alone", (0,), (6,)), timed.SHAPE, SmallModel("", SMALL, 10_000)
    weights, more = shape.whole_bytes, SMALL.whole_bytes

    def at(memory: float) -> Topology:
        return clusters.star(1, n0=Device("d", 2e9, 1e9, memory_bytes=int(memory)))

    room = at(weights + more + 10 * 16 * 7 * 256)
    assert limits_of(layout, room, shape, 1000).blocks == 10 + (int(more) + 10 * 16 * 256) // (16 * 6 * 256)
    limits = limits_of(layout, room, shape, 1000, draft=draft)
    assert limits.blocks == 10
    assert within(limits, layout, shape, 3 * 16 * 7 * 256, draft).blocks == 3
    with pytest.raises(
        UsageError, match=r"node n0: found .* of weights, with tiny, expected room for them and a block"
    ):
        limits_of(layout, at(weights + more), shape, 1000, draft=draft)


def test_a_node_that_prefills_has_no_draft(model: str, drafts: Any, expected: Any) -> None:
    layout, draft = LAYOUTS["two prefill"], drafts["other"]
    plain, found = answered(model, layout, requests()), answered(model, layout, requests(), draft=draft, guesses=3)
    assert tokens_of(found) == expected[WARM]
    weights = [use.weight_bytes for use in plain.nodes]
    assert [use.weight_bytes > own for use, own in zip(found.nodes, weights, strict=True)] == [False, False, True]
    assert found.prefilled == sum(len(one.prompt) for one in requests())
    held = [held_bytes(layout, timed.SHAPE, place, draft) for place in range(3)]
    assert held[0] == held[1] == held_bytes(layout, timed.SHAPE, 2) < held[2]


def test_a_pipeline_from_the_plan_leaves_room_for_the_draft_on_its_first_node() -> None:
    shape, draft, lengths = timed.SHAPE, SmallModel("", SMALL, 10_000), Lengths(16, 16)
    device = Device(
        "d", 2e9, 1e9, memory_bytes=int(shape.ends_bytes(True, False) + 4.5 * (shape.layer_bytes + 32 * 256))
    )
    cluster = clusters.star(2, n0=device, n1=device)
    # The first of two equal nodes gets all layers that fit: 4. A layer has 36,992 weights of 2 B, the draft 26,720.
    assert layout_of("pipeline", cluster, shape, lengths).layers == (4, 2)
    layout = layout_of("pipeline", cluster, shape, lengths, draft=draft)
    assert layout.layers == (3, 3)
    assert limits_of(layout, cluster, shape, 32, draft=draft).blocks >= 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "draft: found small with a vocabulary of 256 tokens, expected a vocabulary of 300 tokens, as large has"),
        (
            {"tokenizer": "bpe", "vocabulary": 300},
            "draft: found small with token 256 as b'.*', expected b'', as large has",
        ),
    ],
)
def test_models_with_other_tokens_are_refused_by_both_names(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    large, other = gpt(tmp_path / "large", vocabulary=300), gpt(tmp_path / "small", **changed)
    with pytest.raises(UsageError, match=said):
        setup_of(Asked(large, prompt="To be", guessing=Guessing(draft=other)), clusters.star(1))


def test_models_with_other_end_tokens_are_refused(tmp_path: Path) -> None:
    large, other = (
        str(write(tmp_path / name, tiny.HALVES, eos_token_id=end)) for name, end in (("large", 7), ("small", 8))
    )
    with pytest.raises(UsageError, match=r"small with the end tokens \[8\], expected \[7\], as large has"):
        setup_of(Asked(large, prompt="To be", guessing=Guessing(draft=other)), clusters.star(1))


@pytest.mark.parametrize(
    ("guessing", "said"),
    [
        (Guessing(0, "8b", 0.5), "guesses: found 0, expected a whole number from 1 to 64"),
        (Guessing(4), "guesses: found 4, expected none without --draft, as no token is known"),
        (Guessing(4, "8b"), "acceptance: found none, expected the chance that a guess is right, from 0 to 1"),
        (Guessing(4, "8b", 1.5), "acceptance: found 1.5, expected the chance"),
        (Guessing(acceptance=0.5), "acceptance: found 0.5, expected it with --draft and times alone"),
        (Guessing(4, "9b", 0.5), "draft: found --model: '9b'"),
        (Guessing(4, "7b", 0.5), "found Llama 2 7B with a vocabulary of 32,000 tokens, expected .* as Llama 3 70B has"),
    ],
)
def test_guesses_that_cannot_be_made_are_refused(guessing: Guessing, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        setup_of(Asked("70b", prompt_tokens=8, guessing=guessing), clusters.star(1))
