"""Models on an accelerator, for which a strict stand-in stands: every placement has the tokens of the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.formats import Precision
from simcluster.lm.models.open import open_model
from simcluster.lm.processor import NodeProcessor
from simcluster.lm.request import Request, Sampling
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from tests.support import clusters
from tests.support.stand_in import counted, install
from tests.support.tiny_models import model_of, write_folder

LAYOUTS = {
    "alone": PlacementLayout("alone", (0,), (4,)),
    "pipeline": PlacementLayout("pipeline", (0, 1), (2, 2)),
    "tensor": PlacementLayout("tensor", (0, 1), (4, 4)),
    "prefill and decode": PlacementLayout("replicas", (0, 1), (4, 4), prefill=1),
}
REQUESTS = (
    Request("greedy", (3, 1, 4, 1, 5, 9), 6, logprobs=2),
    Request("warm", (2, 7, 1), 6, Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=3)),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "precision"), [("llama", "f32"), ("gemma2", "f32"), ("qwen2", "int8"), ("qwen3_moe", "int8")]
)
def test_every_placement_has_the_tokens_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, precision: Precision
) -> None:
    device = install()
    monkeypatch.setattr("simcluster.compute.place.accelerators", lambda: [device])
    path = str(write_folder(tmp_path / "model", model_of(kind)))
    shape = open_model(path).shape
    limits = EngineLimits(100, 256, shape.vocabulary, block_tokens=4, chunk_tokens=4)
    cluster = clusters.star(2)
    for layout in LAYOUTS.values():
        setup = Setup(path, shape, precision, "real", layout, limits, False, requests=REQUESTS)
        on_device = replace(setup, processors={name: NodeProcessor("auto", 1, 1) for name in cluster.workers})
        expected = tokens(answer_all(setup, cluster))
        with counted() as copies:
            found = tokens(answer_all(on_device, cluster))
        assert copies.up > 0 < copies.down
        assert found == expected or precision != "f32", layout.kind
        assert [len(one) for one in found] == [6, 6]


def tokens(result: Any) -> list[tuple[int, ...]]:
    return [result.answers[one.id].tokens for one in REQUESTS]
