"""Attention costs its products, and a mesh of cuda splits it by heads, as on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from simcluster.scripts.rank.work_meter import WorkMeter
from tests.core.scripts.running import pair, printed, run_script

SPLIT = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention

mesh = init_device_mesh("cuda", (2,))
torch.manual_seed(0)
whole = [torch.randn(2, 4, 8, 16, device="cuda", requires_grad=True) for _ in range(3)]
expected = scaled_dot_product_attention(*whole, is_causal=True)
expected.square().sum().backward()
for place in (Shard(1), Shard(0), Replicate()):
    parts = [distribute_tensor(tensor.detach(), mesh, [place]).requires_grad_() for tensor in whole]
    found = scaled_dot_product_attention(*parts, is_causal=True)
    assert found.placements == (place,)
    found.square().sum().backward()
    torch.testing.assert_close(found.full_tensor(), expected)
    for part, tensor in zip(parts, whole, strict=True):
        torch.testing.assert_close(part.grad.full_tensor(), tensor.grad)
    print(place, "good")
"""


@pytest.mark.slow
def test_a_mesh_of_cuda_splits_attention_by_heads_and_by_samples(tmp_path: Path) -> None:
    (tmp_path / "split.py").write_text(SPLIT)
    run_script(tmp_path / "split.py", tmp_path / "run", pair())
    for node in "ab":
        assert [line for line in printed(tmp_path / "run", node) if line.endswith(" good")] == [
            "S(1) good",
            "S(0) good",
            "R good",
        ]


@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_costs_two_products_forward_and_five_backward(is_causal: bool) -> None:
    query = torch.ones(2, 4, 10, 8, requires_grad=True)
    with WorkMeter() as meter:
        total = scaled_dot_product_attention(query, query, query, is_causal=is_causal).sum()
        assert meter.take().flops == 2 * (2 * 4 * 10 * 10 * 8) * 2
        total.backward()
        assert meter.take().flops == 2 * (2 * 4 * 10 * 10 * 8) * 5


def test_a_recurrent_layer_costs_its_products() -> None:
    model = torch.nn.LSTM(6, 10)
    with WorkMeter() as meter:
        model(torch.ones(5, 2, 6))
    assert meter.take().flops == 2 * (5 * 2) * (4 * 10) * (6 + 10)
