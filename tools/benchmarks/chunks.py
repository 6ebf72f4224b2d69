"""`python -m tools.benchmarks.chunks`: what the size of a prompt's chunks costs, and how much of a prefix it shares.

60 requests on smolcluster in the simulator, with prompts of 100 to 1,500 tokens and answers of 64.
experiments/LOG.md has the numbers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from simcluster.lm.plan.shape import PRESETS, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request
from simcluster.lm.serving.placing import layout_of, limits_of
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import Setup
from simcluster.topology import load

LOADS = {"smollm2": 2.0, "8b": 0.05}
"""Model -> requests per second."""

SHAPES = {"smollm2": PRESETS["smollm2"], "8b": with_weights(PRESETS["8b"], "q4")}

CHUNKS = (64, 128, 256, 512)
PROMPTS, ANSWER, CONTEXT = (100, 300, 700, 1500), 64, 10_000
PREFIXES = (100, 200, 400, 1000)
"""Tokens that a prompt has in common with an earlier one."""


def answered(model: str, chunk: int) -> ServingResult:
    """Answer the load of *model* with chunks of *chunk* tokens."""
    cluster, shape, stream = load("smolcluster"), SHAPES[model], random.Random(0)
    layout = layout_of("auto", cluster, shape, Lengths(), requests=8)
    arrival_s, requests = 0.0, []
    for i in range(60):
        arrival_s += stream.expovariate(LOADS[model])
        requests.append(Request(str(i), (0,) * stream.choice(PROMPTS), ANSWER, arrival_s=arrival_s))
    limits = replace(limits_of(layout, cluster, shape, CONTEXT), chunk_tokens=chunk)
    return answer_all(Setup("", shape, "f32", "none", layout, limits, False, requests=tuple(requests)), cluster)


def quantiles(values: Sequence[float]) -> str:
    """Return the median and the 99th percentile in ms."""
    ranked = sorted(values)
    return " ".join(f"{1e3 * ranked[int(part * len(ranked))]:.1f}" for part in (0.5, 0.99))


def main() -> None:
    for model in LOADS:
        for chunk in CHUNKS:
            answers = answered(model, chunk).answers.values()
            ttfts_s = [one.ttft_s for one in answers if one.ttft_s is not None]
            tpots_s = [one.tpot_s for one in answers if one.tpot_s is not None]
            shared = ", ".join(f"{prefix // chunk * chunk / prefix:.0%} of {prefix}" for prefix in PREFIXES)
            print(f"{model}, {chunk}: TTFT {quantiles(ttfts_s)} ms, TPOT {quantiles(tpots_s)} ms; shares {shared}")


if __name__ == "__main__":
    main()
