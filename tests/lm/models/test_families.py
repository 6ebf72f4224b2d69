"""Every family of models, in folders and in GGUF files: the logits are those of transformers.

The whole model of transformers is the reference. A model is cut by layers and by heads, and its
prompt into chunks, so that caches, windows and positions take part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from tests.support.gguf_models import ARCHITECTURES, write_gguf
from tests.support.tiny_models import (
    FAMILIES,
    SIZES,
    TOKENS,
    logits_of,
    model_of,
    shards_of,
    through,
    through_shards,
    write_folder,
)

CHUNKS = [TOKENS[:9], TOKENS[9:11], TOKENS[11:]]


def check(model: Any, file: ModelFile) -> None:
    expected = logits_of(model, TOKENS)
    layers = file.shape.layers
    assert expected.abs().max() > 0.1
    alone = through([file.share(0, layers)], CHUNKS)
    torch.testing.assert_close(alone, expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(through([file.share(0, 1), file.share(1, layers)], CHUNKS), alone)
    torch.testing.assert_close(through_shards(shards_of(file, 2), CHUNKS), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_folder_has_the_logits_of_transformers(tmp_path: Path, kind: str) -> None:
    model = model_of(kind)
    check(model, open_model(str(write_folder(tmp_path / "model", model))))


@pytest.mark.parametrize("quantisation", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_gguf_file_has_the_logits_of_transformers(tmp_path: Path, kind: str, quantisation: str) -> None:
    model = model_of(kind)
    check(model, open_model(str(write_gguf(tmp_path / "model.gguf", model, quantisation))))


UNEVEN = {"intermediate_size": 88, "moe_intermediate_size": 88, "num_key_value_heads": 4}


@pytest.mark.parametrize("kind", ["llama", "mixtral", "qwen2_moe", "gpt_oss"])
def test_four_shards_have_rows_of_any_length(tmp_path: Path, kind: str) -> None:
    # 88 columns in four shards are 22: neither 16 bytes nor a block of a kernel.
    model = model_of(kind, **{key: value for key, value in UNEVEN.items() if key in FAMILIES[kind] | SIZES})
    file = open_model(str(write_folder(tmp_path / "model", model)))
    found = through_shards(shards_of(file, 4), CHUNKS)
    torch.testing.assert_close(found, logits_of(model, TOKENS), atol=1e-4, rtol=1e-4)
    assert through_shards(shards_of(file, 4, precision="int8"), CHUNKS).isfinite().all()


def test_a_window_that_only_the_mask_of_transformers_has_is_heeded(tmp_path: Path) -> None:
    window = {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}
    model = model_of("qwen2_moe", **window)
    assert not torch.equal(logits_of(model, TOKENS), logits_of(model_of("qwen2_moe"), TOKENS))
    check(model, open_model(str(write_folder(tmp_path / "model", model))))
