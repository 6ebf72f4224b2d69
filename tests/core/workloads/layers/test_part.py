"""Some of the parameters, stepped by their share of the optimizer: together the step of the whole, at its cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simcluster.workloads import Workload, mnist_mlp

CLIPPED = {"clip_norm": 0.05}


def workload(**settings: Any) -> Workload:
    return mnist_mlp(hidden=8, batch_size=8, **settings)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"optimizer": "adamw", "learning_rate": 0.01}, CLIPPED])
def test_parts_take_the_step_of_the_whole(settings: dict[str, Any]) -> None:
    whole, parted = (workload(**settings).replica(0, 1, 0, 4) for _ in range(2))
    parts = [parted.part([0, 3]), parted.part([1]), parted.part([2]), parted.part([])]
    for batch in whole.batches():
        _, gradients = whole.loss_and_gradients(batch)
        whole.apply(gradients)
        own = [[gradients[place] for place in part.places] for part in parts]
        squares = sum(part.squared_norm(share) for part, share in zip(parts, own, strict=True))
        for part, share in zip(parts, own, strict=True):
            part.apply(share, squares if part.clips else None)
    for mine, reference in zip(parted.parameters, whole.parameters, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-6 if settings is CLIPPED else 0, atol=1e-9)
    assert parts[0].parameters[1] is parted.parameters[3]


def test_without_the_norm_of_all_gradients_nothing_is_clipped_in_silence() -> None:
    part = workload(**CLIPPED).replica(0, 1, 0, 1).part([1])
    assert part.clips
    with pytest.raises(ValueError, match="clipped by the norm of all of them, so apply needs squared_norm"):
        part.apply([torch.ones(8)])
    with pytest.raises(ValueError, match="2 gradients, but the part has 1 parameters"):
        part.apply([torch.ones(8)] * 2, torch.ones(1))


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adamw"}, CLIPPED])
def test_parts_cost_what_the_whole_costs_computed_or_not(settings: dict[str, Any]) -> None:
    real, none = (workload(**settings).replica(0, 1, 0, 1, numerics=numerics) for numerics in ("real", "none"))
    places = [[0, 1], [2, 3], []]
    for mine, timed in zip(map(real.part, places), map(none.part, places), strict=True):
        assert mine.apply_cost() == timed.apply_cost()
        assert mine.norm_cost() == timed.norm_cost()
        assert [p.shape for p in mine.parameters] == [p.shape for p in timed.parameters]
        assert timed.squared_norm([p.detach() for p in timed.parameters]).is_meta
    parts = [real.part(part) for part in places]
    flops = sum(part.apply_cost().flops + (part.norm_cost().flops if part.clips else 0) for part in parts)
    # A few numbers more for norms that are summed: the whole is 6,400 parameters.
    assert flops == pytest.approx(real.apply_cost().flops, abs=60)
