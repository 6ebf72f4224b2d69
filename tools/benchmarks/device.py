"""`python -m tools.benchmarks.device`: one core of this machine as a device for language models.

A token of a tiny model yields the overhead per operator. A token of SmolLM2
yields the memory bandwidth, and a prompt of this model the FLOP/s. The program prints them as keys
of a topology.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from simcluster.lm.engine.batch import EngineBatch, NewSequence, SequenceChunk
from simcluster.lm.engine.stage import RealStage
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from simcluster.process.intra_op import use_one_thread
from simcluster.transport import Cost
from tests.support.tiny_models import model_of, write_folder
from tools.benchmarks.timing import cpu_s

TINY: Mapping[str, object] = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
    "intermediate_size": 256, "vocab_size": 256, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip
PROMPT = 512
TOKENS = 20


def taken(file: ModelFile) -> tuple[tuple[float, Cost], tuple[float, Cost]]:
    """Return (CPU seconds, cost) of a token after a prompt of PROMPT tokens, and of the prompt
    itself.

    The time of a token is the median of TOKENS tokens.
    """
    share = file.share(0, file.shape.layers)
    stage = RealStage(share, file.shape, lambda logits, *_: int(logits.argmax()))

    def run(batch: EngineBatch) -> tuple[float, Cost]:
        tokens = torch.zeros(batch.tokens, dtype=torch.int64)
        return cpu_s(lambda: stage.choose(batch, stage.forward(batch, tokens))), of(stage, batch)

    opened = NewSequence(0, PROMPT + TOKENS, 0.0, 0, 1.0, 0)
    run(EngineBatch((SequenceChunk(0, 0, PROMPT, True),), (opened,)))
    prompt = run(EngineBatch((SequenceChunk(0, 0, PROMPT, True),)))
    tokens = [run(EngineBatch((SequenceChunk(0, PROMPT + place, 1, True),))) for place in range(TOKENS)]
    return (statistics.median(seconds for seconds, _ in tokens), tokens[TOKENS // 2][1]), prompt


def of(stage: RealStage, batch: EngineBatch) -> Cost:
    return stage.costs.layers_of(batch) + stage.costs.head_of(batch)


def main() -> None:
    use_one_thread()
    with tempfile.TemporaryDirectory() as folder:
        (tiny_s, tiny), _ = taken(open_model(str(write_folder(Path(folder) / "tiny", model_of(**TINY)))))
    (token_s, token), (prompt_s, prompt) = taken(open_model("smollm2"))
    operator_s = tiny_s / tiny.operators  # memory reads add a few percent
    bandwidth_Bps = token.memory_bytes / (token_s - token.operators * operator_s)
    flops_per_s = prompt.flops / (prompt_s - prompt.operators * operator_s)
    print(f"a token: {tiny_s * 1e3:.2f} ms of 2 layers, {token_s * 1e3:.1f} ms of SmolLM2; its prompt {prompt_s:.2f} s")
    print(f"flops: {flops_per_s / 1e9:.0f} GFLOP/s")
    print(f"memory_bandwidth: {bandwidth_Bps / 1e9:.1f} GB/s")
    print(f"operator_overhead: {operator_s * 1e6:.0f} us")


if __name__ == "__main__":
    main()
