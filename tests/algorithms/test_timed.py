"""The cost of an algorithm's own arithmetic is the same on zeros and without values; so is what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import simcluster
from simcluster.algorithms import timed

CASES: list[dict[str, Any]] = [
    *({"name": name} for name in ("async_diloco", "demo", "diloco", "easgd", "fedbuff", "local_sgd", "one_bit_adam")),
    *({"name": name} for name in ("sparta", "streaming_diloco")),
    *({"name": "easgd", "form": form} for form in ("synchronous", "round_robin")),
    {"name": "demo", "update": "mean"},
    {"name": "fedbuff", "damping": "none", "buffer": 1},
    {"name": "fedbuff", "concurrency": 1, "server_trains": False},
    {"name": "local_sgd", "participation": 0.5},
]


def shapes(found: Any) -> Any:
    if isinstance(found, Tensor):
        return found.shape, found.dtype
    return [shapes(part) for part in found] if isinstance(found, (list, tuple)) else found


@pytest.mark.parametrize("algorithm", CASES, ids=str)
def test_work_is_counted_alike_on_zeros_and_without_values(
    algorithm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[Any, None] = {}
    counted = timed._counted

    def noted(*key: Any) -> timed.Counted:
        asked[key] = None
        return counted(*key)

    monkeypatch.setattr(timed, "_counted", noted)
    workload = {"name": "gpt", "layers": 4, "width": 32, "heads": 4, "context": 8, "batch_size": 4}
    topology = {"generator": "star", "workers": 4}
    run = {"topology": topology, "workload": workload, "stop": {"steps": 12}, "numerics": "none"}
    simcluster.run({**run, "algorithm": algorithm}, out=tmp_path / "run", report=False)
    assert asked
    for key in asked:
        found = []
        for few in (timed.FEW, -1):
            monkeypatch.setattr(timed, "FEW", few)
            found.append(counted.__wrapped__(*key))  # type: ignore[attr-defined]
        assert found[0].cost == found[1].cost
        assert shapes(found[0].found) == shapes(found[1].found)
        assert found[0].is_known


def scaled(tensor: Tensor, scale: float) -> Tensor:
    return tensor.mul(scale)


def test_work_is_counted_once_whatever_its_floats() -> None:
    tensor = torch.zeros(3)
    costs = {timed.cost_of(scaled, tensor, 0.5)}
    before = timed._counted.cache_info().misses
    costs |= {timed.cost_of(scaled, tensor, scale) for scale in (0.25, 3.0)}
    assert len(costs) == 1
    assert timed._counted.cache_info().misses == before
