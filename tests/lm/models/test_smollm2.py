"""SmolLM2 against transformers, which reads the same GGUF file by code of its own."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
import torch

from simcluster.lm.models.model_share import SequencePart
from simcluster.lm.models.open import open_model, package_path

PROMPTS = (
    "The quick brown fox jumps over",
    "def fibonacci(n):\n    if n < 2:\n",
    "東京は日本の",
    "Grüße aus München! Ich möchte",
    "🙂🙃 means that",
)
ANSWER = 40


def scores_of_transformers(sequences: list[list[int]]) -> list[np.ndarray[Any, Any]]:
    """Return the logits after each of the last ANSWER tokens of *sequences*."""
    from transformers import AutoModelForCausalLM

    path = package_path("smollm2")
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    with torch.inference_mode():
        return [model(input_ids=torch.tensor([tokens])).logits[0, -ANSWER:].numpy() for tokens in sequences]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_ids_and_log_probabilities_are_those_of_transformers() -> None:
    file = open_model("smollm2")
    share = file.share(0, file.shape.layers)
    assert file.tokenizer is not None
    answers: list[torch.Tensor] = []
    sequences: list[list[int]] = []
    for prompt in PROMPTS:
        tokens = file.tokenizer.encode(prompt)
        cache = share.cache(len(tokens) + ANSWER)
        (scores,) = share.forward([SequencePart(cache, torch.tensor(tokens))], [1])
        rows = [scores]
        for _ in range(ANSWER - 1):
            tokens.append(int(scores[-1].argmax()))
            (scores,) = share.forward([SequencePart(cache, torch.tensor(tokens[-1:]))], [1])
            rows.append(scores)
        answers.append(torch.cat(rows).log_softmax(-1))
        sequences.append(tokens)
    # In another process: transformers has other numbers after a test has installed the stand-in for a device.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        references = pool.submit(scores_of_transformers, sequences).result()
    for found, reference in zip(answers, references, strict=True):
        expected = torch.from_numpy(reference).log_softmax(-1)
        # The reference sees our tokens. If each is its first choice too, it would have chosen the same.
        assert torch.equal(found.argmax(-1), expected.argmax(-1))
        chosen = found.argmax(-1, keepdim=True)
        assert torch.all((found - expected).gather(1, chosen).abs() < 1e-4)
