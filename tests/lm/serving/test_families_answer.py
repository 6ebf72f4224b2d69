"""Every family of models answers with transformers' tokens, in every placement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.request import Request
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from tests.support import clusters
from tests.support.gguf_models import ARCHITECTURES, write_gguf
from tests.support.levels import sample_of
from tests.support.tiny_models import FAMILIES, model_of, write_folder

PROMPTS = ((3, 1, 4, 1, 5, 9, 2, 6, 5, 3), (60, 61), (100, 7, 8))
ANSWER = 8


def greedy(model: Any, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens that transformers chooses, each with the highest score."""
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(ANSWER):
            tokens.append(int(model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax()))
    return tuple(tokens[len(prompt) :])


def answered(path: Path, layout: PlacementLayout, backend: str = "sim") -> list[tuple[int, ...]]:
    shape = open_model(str(path)).shape
    limits = EngineLimits(100, 256, shape.vocabulary, block_tokens=4, chunk_tokens=4)
    requests = tuple(Request(str(i), prompt, ANSWER) for i, prompt in enumerate(PROMPTS))
    setup = Setup(str(path), shape, "f32", "real", layout, limits, backend != "sim", requests=requests)
    found = answer_all(setup, clusters.star(2), backend=backend).answers
    return [found[one.id].tokens for one in requests]


def layouts(layers: int) -> dict[str, PlacementLayout]:
    return {
        "pipeline": PlacementLayout("pipeline", (0, 1), (1, layers - 1)),
        "tensor": PlacementLayout("tensor", (0, 1), (layers, layers)),
        "replicas": PlacementLayout("replicas", (0, 1), (layers, layers), prefill=1),
    }


def written(path: Path, kind: str, file: str) -> tuple[Any, Path, int]:
    model = model_of(kind)
    made = write_folder(path / "model", model) if file == "folder" else write_gguf(path / "model.gguf", model, file)
    return model, made, model.config.num_hidden_layers


@pytest.mark.slow
@pytest.mark.parametrize("file", ["folder", *sample_of(["Q8_0", "Q4_0"], 2)])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_placement_answers_with_the_tokens_of_transformers(tmp_path: Path, kind: str, file: str) -> None:
    if file != "folder" and kind not in ARCHITECTURES:
        pytest.skip("GGUF files of this family are Llama's")
    model, path, layers = written(tmp_path, kind, file)
    expected = [greedy(model, prompt) for prompt in PROMPTS]
    assert len({*expected}) == len(PROMPTS)
    for layout in layouts(layers).values():
        assert answered(path, layout) == expected
