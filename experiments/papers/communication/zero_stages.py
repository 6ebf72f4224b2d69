"""What each stage of ZeRO holds and sends: memory falls to an Nth, traffic stays, until parameters are parted too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from experiments.papers.frame import Check, Lab, Paper, agrees, star
from experiments.papers.frame.lab import values

EQUAL = f"{Path(__file__).parent.parent / 'frame' / 'equal_layers.py'}:equal_layers"
LAYERS = 12
KINDS = ("parameters", "gradients", "optimizer", "peak")


def sent_and_held(lab: Lab, stage: int, ranks: int) -> tuple[float, dict[str, float]]:
    """(bytes that a rank sends in a step, bytes that rank 1 holds at most of each kind)."""
    sent = []
    for steps in (1, 2):
        run = lab.run(
            topology=star([None] * ranks, work="1 us"),
            algorithm={"name": "zero", "stage": stage},
            workload={"path": EQUAL, "layers": LAYERS, "width": lab.pick(256, 1024), "optimizer": "adamw"},
            stop={"steps": steps},
            numerics="none",
        )
        sent.append(run.summary["bytes_sent"])
    held = {kind: values(run, f"{kind}_bytes", "n1")[-1] for kind in KINDS}
    return (sent[1] - sent[0]) / ranks, held


def measure(lab: Lab) -> Sequence[Check]:
    ranks = lab.pick(4, 8)
    found = {stage: sent_and_held(lab, stage, ranks) for stage in (0, 1, 2, 3)}
    M = found[0][1]["parameters"]
    checks = []
    for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        passes = found[stage][0] / (M * (ranks - 1) / ranks)
        checks.append(agrees(f"stage {stage}: bytes sent, in (p-1)/p M", passes, times, 0.01))
    for stage, kind in ((1, "optimizer"), (3, "parameters")):
        share = found[stage][1][kind] / found[0][1][kind]
        checks.append(agrees(f"stage {stage}: {kind} against stage 0", share, 1 / ranks, 1e-3))
    parted, most = found[2][1]["gradients"] / M, 1 / ranks + 2 / LAYERS
    words = f"1/{ranks} to {most:.3f}, two of twelve layers in flight"
    checks.append(Check("stage 2: gradients against M", words, f"{parted:.3f}", 1 / ranks <= parted <= most))
    peaks = [found[stage][1]["peak"] / M for stage in (0, 1, 2, 3)]
    told = ", ".join(f"{peak:.2f} M" for peak in peaks)
    falling = all(later < sooner for sooner, later in pairwise(peaks))
    checks.append(Check("held at most, stage by stage", "less with every stage", told, falling))
    return checks


PAPER = Paper(
    title="ZeRO: memory and traffic by stage",
    citation="Rajbhandari, Rasley, Ruwase and He 2020. ZeRO: memory optimizations toward training trillion parameter "
    "models (SC), sections 5 and 7",
    claim="Partitioning the optimizer's state (stage 1) and also the gradients (2) among p ranks takes no more "
    "traffic than plain data parallelism, 2 (p-1)/p M per step; partitioning the parameters (3) takes half as "
    "much again, and then all memory falls with p.",
    setting="`zero` with AdamW in float32, eight ranks, twelve equal layers of a million parameters, timed without "
    "computing. Bytes are those of a second step. The optimizer's state is its two moments and the owner's copy. "
    "No parameter is used twice: a tied embedding is gathered for each use, which turns 3 into 3.6 for a GPT "
    "with 125 million parameters.",
    expected="2, 2, 2 and 3 times (p-1)/p M; optimizer and parameters to 1/p; gradients to 1/p and the layers in "
    "flight.",
    measure=measure,
)
