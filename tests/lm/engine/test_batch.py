"""Batches and sampling settings in messages."""

from __future__ import annotations

import json

import msgspec

from simcluster.lm.engine.batch import (
    EngineBatch,
    NewSequence,
    RuledSequence,
    SequenceChunk,
    read,
    ruled_tensors,
    written,
)
from simcluster.lm.request import Sampling, SamplingRules

PLAIN = EngineBatch((SequenceChunk(3, 0, 5, True),), (NewSequence(3, 9, 0.5, 40, 0.9, 7),), (1, 2))


def test_a_batch_without_rules_has_the_same_bytes_as_before_there_were_any() -> None:
    assert json.loads(written(PLAIN)) == [[[3, 0, 5, True, []]], [[3, 9, 0.5, 40, 0.9, 7, -1, 0, -1]], [1, 2]]
    assert ruled_tensors(PLAIN) == ()
    assert json.loads(msgspec.json.encode(Sampling(0.5, 40, 0.9, 7))) == {
        "temperature": 0.5, "top_k": 40, "top_p": 0.9, "seed": 7
    }  # fmt: skip


def test_rules_travel_as_a_tensor_which_may_be_longer_than_a_header() -> None:
    """A header has at most 64 KiB; 100,000 tokens take more."""
    rules = SamplingRules(5, 1.5, bias=((3, -1.0),), ends=(0,), until=8)
    batch = msgspec.structs.replace(PLAIN, ruled=(RuledSequence(3, rules, tuple(range(100_000))),))
    (tensor,) = ruled_tensors(batch)
    assert written(batch) == written(PLAIN)
    assert tensor.numel() > 2**16
    assert read(written(batch), [tensor]) == batch
    assert read(written(PLAIN)) == PLAIN
