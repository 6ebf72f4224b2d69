"""`python -m tools.benchmarks.device`: what one core of this machine is as a device that runs language models.

The overhead of an operator comes from a token of a model too small to compute or read much, the bandwidth of memory
from a token of SmolLM2's shape, the FLOP/s from a prompt of it. The keys that it prints are those of a topology.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor

from simcluster.lm.engine.batch import EngineBatch, NewSequence, SequenceChunk
from simcluster.lm.engine.stage import RealStage
from simcluster.lm.models.architecture import Architecture
from simcluster.lm.models.decoder import DecoderShare
from simcluster.lm.serving.on_cluster import shape_of_architecture
from simcluster.process.intra_op import use_one_thread
from simcluster.transport import Cost
from tools.benchmarks.decode import SMOLLM2, weights
from tools.benchmarks.timing import cpu_s

TINY = Architecture(2, 64, 4, 4, 16, 256, 256, 2048, gated=True, tied=True, rope_base=1e5, pairs="half")
PROMPT, TOKENS = 512, 20


def taken(a: Architecture) -> tuple[tuple[float, Cost], tuple[float, Cost]]:
    """Return (CPU seconds, cost) of a token of *a* after PROMPT others, the median of TOKENS, and of that prompt."""
    tensors = weights(a)

    def read(name: str, layer: int | None, first: int, last: int) -> Tensor:
        return tensors[name, layer][first:last]

    share = DecoderShare(a, read, 0, a.layers, "f32")
    stage = RealStage(share, shape_of_architecture(a, "f32", "random"), lambda logits, *_: int(logits.argmax()))

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
    (tiny_s, tiny), _ = taken(TINY)
    (token_s, token), (prompt_s, prompt) = taken(SMOLLM2)
    operator_s = tiny_s / tiny.operators  # what it also reads is a few percent of that
    bandwidth_Bps = token.memory_bytes / (token_s - token.operators * operator_s)
    flops_per_s = prompt.flops / (prompt_s - prompt.operators * operator_s)
    print(f"a token: {tiny_s * 1e3:.2f} ms of 2 layers, {token_s * 1e3:.1f} ms of SmolLM2; its prompt {prompt_s:.2f} s")
    print(f"flops: {flops_per_s / 1e9:.0f} GFLOP/s")
    print(f"memory_bandwidth: {bandwidth_Bps / 1e9:.1f} GB/s")
    print(f"operator_overhead: {operator_s * 1e6:.0f} us")


if __name__ == "__main__":
    main()
