"""The GPT: its sizes against the papers', what it may see, what it costs, and that it learns."""

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.workloads import gpt, joined_batches
from simcluster.workloads.models.gpt import GPT, SIZES, next_byte_loss


@pytest.mark.parametrize(
    ("size", "billions"),
    # The papers' own counts; ours lacks biases and, in the 7b and 70b, has learned positions.
    [
        *[
            ("125m", 0.125),
            ("350m", 0.356),
            ("1.3b", 1.3),
            ("2.7b", 2.7),
            ("6.7b", 6.7),
            ("13b", 13.0),
            ("175b", 175.0),
        ],
        *[("7b", 6.74), ("70b", 68.98)],
    ],
)
def test_a_named_size_has_the_parameters_that_its_paper_says(size, billions):
    with torch.device("meta"):
        model = GPT(SIZES[size])
    made = sum(parameter.numel() for parameter in model.parameters())
    assert made / 1e9 == pytest.approx(billions, rel=0.02)
    assert SIZES[size].parameters == made, "without making it"


def test_a_block_has_the_parameters_of_the_arithmetic():
    # 4 heads of 8, 2 of keys and values, gated 24 wide: (4 + 2*2) * 8 * 32 + 32 * 32 + 2 * 24 * 32 + 24 * 32,
    # and two norms of 32.
    with torch.device("meta"):
        shape = SIZES["70b"]
        small = type(shape)(1, 32, 4, 256, 16, 2, 24, gated=True, tied=False)
        block = GPT(small).blocks[0]
    assert sum(parameter.numel() for parameter in block.parameters()) == 2048 + 1024 + 1536 + 768 + 64


def test_a_place_sees_what_came_before_it_and_nothing_later():
    model = gpt(context=8, kv_heads=2).replica(0, 1, 0, 1)._model.eval()
    tokens = torch.arange(8).reshape(1, 8)
    changed = tokens.clone()
    changed[0, 5] = 99
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.equal(before[0, :5], after[0, :5])
    assert not torch.equal(before[0, 5:], after[0, 5:])


def test_order_matters_to_what_is_told():
    model = gpt(context=4).replica(0, 1, 0, 1)._model.eval()
    with torch.no_grad():
        there, back = (model(torch.tensor([tokens]))[0, -1] for tokens in ([1, 2, 3, 9], [2, 1, 3, 9]))
    assert not torch.allclose(there, back)


@pytest.mark.slow
def test_untrained_it_is_as_wise_as_a_die_of_256_sides():
    replica = gpt().replica(0, 1, 0, 1)
    # ln 256 = 5.545
    assert replica.evaluate()["loss"] == pytest.approx(5.545, abs=0.05)


def test_the_loss_is_the_mean_over_places_and_windows():
    scores = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(15, dtype=torch.uint8).reshape(3, 5) % 7
    by_hand = -sum(
        scores.log_softmax(-1)[window, place, int(targets[window, place])] for window in range(3) for place in range(5)
    )
    assert next_byte_loss(scores, targets).item() == pytest.approx(by_hand.item() / 15)


def test_it_costs_six_flops_a_weight_and_token_and_what_attention_adds():
    # tiny: two layers of 12 * 64^2 weights and 256 * 64 of the output; 16 windows of 64 tokens. Each weight costs
    # 2 FLOPs forward and 4 backward. Attention: 2 products forward and 5 backward of 2 * length^2 * width.
    replica = gpt().replica(0, 1, 0, 1)
    weights = 2 * 12 * 64**2 + 256 * 64
    expected = 6 * weights * 16 * 64 + 2 * 16 * (2 + 5) * 2 * 64**2 * 64
    assert replica.gradient_cost(next(replica.batches())).flops == expected


@pytest.mark.slow
def test_five_ranks_worth_of_batches_teach_it_some_english():
    workload = gpt(batch_size=8, context=32)
    replicas = [workload.replica(rank, 5, 0, 120) for rank in range(5)]
    for batch in joined_batches(replicas):
        replicas[0].apply(replicas[0].loss_and_gradients(batch)[1])
    # How often which byte occurs tells 3.48 nats of it; measured 2.62 to 2.66 over three seeds.
    assert replicas[0].evaluate()["loss"] < 2.8


@pytest.mark.parametrize(
    "settings",
    [
        {"size": "tiny", "layers": 1},
        {"width": 32},
        {"heads": 2},
        {"kv_heads": 1},
        {"head_width": 8},
        {"feed_forward": 100},
        {"vocabulary": 300},
        {"context": 32},
        {"batch_size": 4},
        {"learning_rate": 0.01},
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "momentum": 0.9},
        {"clip_norm": 0.01},
        {"clip_norm": None},
    ],
)
def test_a_setting_changes_what_is_learnt(settings):
    def weights(**changes) -> str:
        replica = gpt(**changes).replica(0, 2, 0, 2)
        for batch in replica.batches():
            replica.apply(replica.loss_and_gradients(batch)[1])
        return replica.weights_sha256()

    base = {"optimizer": "sgd"} if "momentum" in settings else {}
    assert weights(**settings) != weights(**base)


def test_other_data_is_learnt_from_a_file(tmp_path):
    path = tmp_path / "ab.txt"
    path.write_bytes(b"ab" * 2000)
    replica = gpt(data=str(path), context=16, batch_size=8, layers=1).replica(0, 1, 0, 60)
    for batch in replica.batches():
        replica.apply(replica.loss_and_gradients(batch)[1])
    # b after a, a after b: nothing is left to be surprised at.
    assert replica.evaluate()["loss"] < 0.1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"width": 65}, "width: found 65, expected a multiple of the 4 heads, or a head_width"),
        ({"kv_heads": 3}, "kv_heads: found 3, expected a divisor of the 4 heads"),
        ({"active": 2}, "active: found 2, expected none without experts"),
        ({"context": 100_000}, "context: found 100000, expected at most 61634"),
        ({"momentum": 0.9}, "momentum: found 0.9, expected 0 with adamw"),
    ],
)
def test_settings_that_do_not_fit_together_are_told(settings, problem):
    with pytest.raises(UsageError, match=problem):
        gpt(**settings)


def test_held_out_windows_of_a_large_model_are_few_enough_to_judge_at_once():
    # 2^24 scores in all; one window of the 125m has 2048 * 50257 = 103 million, so one is all there is.
    assert len(gpt(size="125m").test_samples) == 1
    assert len(gpt().test_samples) == (616_357 // 10 - 1) // 64
