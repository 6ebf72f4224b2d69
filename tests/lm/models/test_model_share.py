"""Shares of a model: chunks, neighbours, formats, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.lm.formats import FORMATS, Precision
from simcluster.lm.models.model_share import SequencePart
from simcluster.lm.models.open import open_model
from tests.support.tiny_models import (
    TOKENS,
    logits_of,
    model_of,
    shards_of,
    through,
    through_shards,
    write_folder,
)

CUTS = [[12], [4, 4, 4], [6, 1, 1, 1, 1, 1, 1], [1] * 12]


def cut(sizes: list[int]) -> list[list[int]]:
    return [TOKENS[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("sizes", CUTS)
def test_any_chunks_of_a_prompt_give_the_logits_of_the_whole(tmp_path: Path, kind: str, sizes: list[int]) -> None:
    # Gemma 2 and gpt-oss see 8 tokens in every other layer, and the prompt has 12.
    model = model_of(kind)
    share = open_model(str(write_folder(tmp_path / "model", model))).share(0, 4)
    torch.testing.assert_close(through([share], cut(sizes)), logits_of(model, TOKENS), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_sequences_of_unlike_lengths_in_a_batch_have_the_results_that_each_has_alone(tmp_path: Path, kind: str) -> None:
    share = open_model(str(write_folder(tmp_path / "model", model_of(kind)))).share(0, 4)
    caches = [share.cache(32) for _ in range(3)]
    rows: list[list[torch.Tensor]] = [[], [], []]
    for sizes in ((5, 1, 9), (1, 4, 1), (2, 2, 1)):
        parts = []
        for number, (cache, size) in enumerate(zip(caches, sizes, strict=True)):
            tokens = [(number + one) % 50 for one in TOKENS]
            parts.append(SequencePart(cache, torch.tensor(tokens[cache.length : cache.length + size])))
        for row, found in zip(rows, share.forward(parts), strict=True):
            row.append(found)
    for number, found in enumerate(rows):
        tokens = [(number + one) % 50 for one in TOKENS]
        alone = through([share], [tokens[: sum(map(len, found))]])
        torch.testing.assert_close(torch.cat(found), alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", ["f32", "int8", "q4"])
def test_the_logits_of_the_last_tokens_alone_are_those_among_all(tmp_path: Path, precision: Precision) -> None:
    share = open_model(str(write_folder(tmp_path / "model", model_of()))).share(0, 4, precision)
    whole, last = (
        share.forward([SequencePart(share.cache(16), torch.tensor(TOKENS[:n])) for n in (11, 1, 5)], last=last)
        for last in (None, [2, 1, 0])
    )
    for found, among, rows in zip(last, whole, (2, 1, 0), strict=True):
        near = 1e-5 if precision == "f32" else 0.05
        torch.testing.assert_close(found, among[len(among) - rows :], atol=near, rtol=near)
    (none,) = share.forward([SequencePart(share.cache(4), torch.tensor([1]))], last=[0])
    assert none.shape == (0, 200)
    assert share.forward([]) == []


# The weights are random, so errors do not average out: bf16 has 8 bits, and 4 bits are 16 numbers for a range of five
# deviations. A token whose router is undecided between two experts has any error, so the median of the tokens counts.
@pytest.mark.parametrize(("precision", "most"), [("bf16", 0.05), ("f16", 0.01), ("int8", 0.08), ("q4", 0.6)])
@pytest.mark.parametrize("kind", ["qwen2", "gemma3_text", "qwen3_moe", "gpt_oss"])
def test_smaller_weights_stay_near_f32_and_take_less_memory(
    tmp_path: Path, precision: Precision, most: float, kind: str
) -> None:
    file = open_model(str(write_folder(tmp_path / "model", model_of(kind))))
    exact = file.share(0, file.shape.layers)
    small = file.share(0, file.shape.layers, precision)
    expected = through([exact], [TOKENS])

    def error(found: torch.Tensor) -> float:
        return float(((found - expected).norm(dim=1) / expected.norm(dim=1)).median())

    assert through([small], [TOKENS]).dtype == torch.float32
    assert 0 < error(through([small], [TOKENS])) < most
    # Scales of rows and groups differ in a shard, where a row is cut.
    assert error(through_shards(shards_of(file, 2, precision=precision), [TOKENS])) < most
    # Norms, routers and biases stay in f32 and are a large part of so small a model.
    assert small.nbytes < {"int8": 0.3, "q4": 0.2}.get(precision, 0.51) * exact.nbytes


def test_the_memory_of_a_share_is_that_of_its_weights(tmp_path: Path) -> None:
    file = open_model(str(write_folder(tmp_path / "model", model_of("llama", tie_word_embeddings=True))))
    # A layer has 128 x 64 queries, twice 64 x 64 keys and values, 64 x 128 outputs, 3 x 96 x 64 MLP weights and two
    # norms of 64; the table has 200 x 64 and is also the head.
    layer = 2 * 128 * 64 + 2 * 64 * 64 + 3 * 96 * 64 + 2 * 64
    table = 200 * 64
    assert file.share(0, 4).nbytes == 4 * (4 * layer + table + 64)
    assert file.share(0, 1).nbytes == 4 * (layer + table)
    assert file.share(1, 3).nbytes == 4 * 2 * layer
    assert file.share(3, 4).nbytes == 4 * (layer + table + 64)
    # Each of two shards has half of all matrices; norms and the table are whole.
    assert [one.nbytes for one in shards_of(file, 2)] == [4 * (4 * (layer // 2 + 64) + table + 64)] * 2


def test_a_full_cache_refuses_before_any_cache_changes(tmp_path: Path) -> None:
    share = open_model(str(write_folder(tmp_path / "model", model_of()))).share(0, 4)
    roomy, full = share.cache(16), share.cache(3)
    with pytest.raises(ValueError, match="found 4 tokens, expected 1 to the 3"):
        share.forward([SequencePart(roomy, torch.arange(4)), SequencePart(full, torch.arange(4))])
    assert roomy.length == 0
    with pytest.raises(ValueError, match="capacity: found 257, expected 1 to the context of 256 tokens"):
        share.cache(257)


def test_heads_that_cannot_be_divided_are_refused(tmp_path: Path) -> None:
    file = open_model(str(write_folder(tmp_path / "model", model_of())))
    with pytest.raises(UsageError, match="found 3, expected a divisor of 2 heads"):
        file.share(0, 4, place=0, count=3)


def test_the_formats_of_the_engine_are_those_tested_here() -> None:
    assert tuple(FORMATS) == ("f32", "bf16", "f16", "int8", "q4")
