"""What a pipeline idles, and what it must remember: by stages, micro-batches and order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, agrees, star
from experiments.papers.frame.lab import values

EQUAL = f"{Path(__file__).parent.parent / 'frame' / 'equal_layers.py'}:equal_layers"


def idle_and_stashed(lab: Lab, p: int, m: int, schedule: str, chunks: int = 1) -> tuple[float, list[float]]:
    """(the largest share of the time that a rank idles in a flush, micro-batches stashed at most on each rank)."""
    algorithm: dict[str, Any] = {"name": "pipeline", "schedule": schedule, "micro_batches": m}
    run = lab.run(
        topology=star([None] * p, work="1 ms"),
        algorithm=algorithm | ({"chunks": chunks} if chunks > 1 else {}),
        workload={"path": EQUAL, "layers": p * chunks, "batch_size": m},
        stop={"steps": 1},
        numerics="none",
    )
    works = 2 * m * chunks  # a forward and a backward pass of each micro-batch, and then the optimizer's step
    spans = [[span for rank, span in run.spans if rank == own and span.kind == "compute"][:works] for own in range(p)]
    end_s = max(each[-1].end_s for each in spans)
    idle = max(1 - sum(span.end_s - span.start_s for span in each) / end_s for each in spans)
    return idle, [max(values(run, "stashed", f"n{rank}")) for rank in range(p)]


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for p, m in lab.pick(((4, 8),), ((2, 4), (4, 4), (4, 8), (4, 32), (8, 32))):
        for schedule in ("gpipe", "1f1b"):
            idle, stashed = idle_and_stashed(lab, p, m, schedule)
            name = f"{schedule}, p = {p}, m = {m}"
            checks.append(agrees(f"{name}: bubble", idle, (p - 1) / (m + p - 1), 1e-6))
            most = [m if schedule == "gpipe" else min(m, p - stage) for stage in range(p)]
            words = ", ".join(f"{count:g}" for count in stashed)
            checks.append(Check(f"{name}: stashed", ", ".join(map(str, most)), words, stashed == most))
    p, m, v = 4, 8, 2
    idle, _ = idle_and_stashed(lab, p, m, "interleaved", v)
    lost = (p - 1) / v
    return [*checks, agrees(f"interleaved, p = {p}, m = {m}, v = {v}: bubble", idle, lost / (m + lost), 1e-6)]


PAPER = Paper(
    title="The bubble of a pipeline, and its stash",
    citation="Huang, Cheng, Bapna and others 2019. GPipe: efficient training of giant neural networks using pipeline "
    "parallelism (NeurIPS); with Narayanan, Shoeybi and others 2021, Efficient large-scale language model training on "
    "GPU clusters using Megatron-LM (SC), section 2.2",
    claim="With p equal stages and m micro-batches a flush is idle for (p-1)/(m+p-1) of its time. One forward, one "
    "backward (1F1B) is idle as long and keeps at most p - i activations on stage i, where GPipe keeps m; v "
    "interleaved chunks per rank reduce p - 1 to (p-1)/v.",
    setting="`pipeline`, equal layers (1 ms forward, 1 ms backward), a network that takes no time, timed without "
    "computing.",
    expected="The formulas, exactly: bubbles to 1e-6, stashes to the micro-batch.",
    measure=measure,
)
