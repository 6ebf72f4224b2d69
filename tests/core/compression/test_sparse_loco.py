"""SparseLoCo: the largest of each chunk, in few bits; what is left out decays; DiLoCo with it is the paper's loop."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from simcluster.compression import Codec, compressor
from simcluster.lab.verify.naive import overwrite, vector, walk
from simcluster.rng import NodeRandom
from tests.core.algorithms.trained import SEED, WORKLOAD, train


def sent_by_hand(vector: Tensor, fraction: float, chunk: int, bits: int) -> Tensor:
    """The algorithm's line for one vector: in every chunk the largest, rounded to 2^bits levels of its largest one."""
    found = torch.zeros_like(vector)
    for start in range(0, len(vector), chunk):
        piece = vector[start : start + chunk]
        places = piece.abs().topk(math.ceil(len(piece) * fraction)).indices
        scale = piece[places].abs().max()
        steps = 2**bits - 1
        codes = ((piece[places] / scale + 1) / 2 * steps).round()
        found[start + places] = (codes * 2 / steps - 1) * scale
    return found


@given(
    length=st.integers(1, 60), chunk=st.integers(1, 70), fraction=st.sampled_from([0.125, 0.25, 0.5, 1.0]),
    bits=st.sampled_from([2, 4, 8]), seed=st.integers(0, 5),
)  # fmt: skip
def test_what_arrives_is_the_largest_of_each_chunk(
    length: int, chunk: int, fraction: float, bits: int, seed: int
) -> None:
    vector = torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    kind = compressor({"kind": "sparse_loco", "fraction": fraction, "chunk": chunk, "bits": bits})
    codec = Codec(kind, NodeRandom(0, "n0"), "s", [vector])
    parts = codec.encode([vector])
    torch.testing.assert_close(codec.decode(parts)[0], sent_by_hand(vector, fraction, chunk, bits))
    whole, rest = divmod(length, min(chunk, length))
    sent = whole * math.ceil(min(chunk, length) * fraction) + math.ceil(rest * fraction)
    chunks = math.ceil(length / chunk)
    assert sum(part.nbytes for part in parts) == math.ceil(sent * bits / 8) + 2 * sent + 8 * chunks


def test_what_is_left_out_decays() -> None:
    vector = torch.tensor([4.0, 1.0, -2.0, 0.5])
    codec = Codec({"kind": "sparse_loco", "fraction": 0.25, "decay": 0.5}, NodeRandom(0, "n0"), "s", [vector])
    codec.encode([vector])
    assert codec.residual is not None
    assert codec.residual.tolist() == [0.0, 1.0, -2.0, 0.5]
    codec.encode([vector])  # 0.5 times the residual, plus the vector: 4, 1.5, -3, 0.75
    assert codec.residual.tolist() == [0.0, 1.5, -3.0, 0.75]


def test_diloco_with_it_is_the_papers_loop() -> None:
    kind = {"kind": "sparse_loco", "fraction": 0.25, "chunk": 4, "bits": 2, "decay": 0.9}
    run = train("diloco", 3, interval=4, outer_learning_rate=0.5, outer_momentum=0.0, compression=kind)
    replicas = [WORKLOAD.replica(rank, 3, SEED, 12) for rank in range(3)]
    batches = [replica.batches() for replica in replicas]
    theta, kept = vector(replicas[0]).clone(), [torch.zeros(6, dtype=torch.float64)] * 3
    for _ in range(3):
        sent = []
        for rank, replica in enumerate(replicas):
            overwrite(replica, theta)
            walk(replica, batches[rank], 4)
            m = 0.9 * kept[rank] + theta - vector(replica)
            sent.append(sent_by_hand(m, 0.25, 4, 2))
            kept[rank] = m - sent[-1]
        theta = theta - 0.5 * torch.stack(sent).mean(0)
    for found in run.vectors:
        torch.testing.assert_close(found, theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrong", [{"bits": 3}, {"chunk": 40_000}, {"decay": 0}, {"fraction": 2}])
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        compressor({"kind": "sparse_loco", **wrong})
