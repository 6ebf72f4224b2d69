"""Legion's count of messages: naive all-gather against a ring."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.frame import Check, Lab, Paper, agrees, exceeds
from simcluster.lab.bench.collective import bench_collective
from simcluster.topology import star

SIZE_BYTES = 8_000_000


def gathered(schedule: str, ranks: int) -> dict[str, float]:
    """Return the numbers of an all-gather of SIZE_BYTES in all."""
    return bench_collective("all_gather", schedule, star(ranks, bandwidth=1e9 / 8, latency=50e-6), SIZE_BYTES, {})


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for ranks in lab.pick((4,), (4, 8, 16)):
        naive, ring = gathered("naive", ranks), gathered("ring", ranks)
        checks += [
            agrees(f"{ranks} ranks: messages, naive", naive["messages"], ranks * (ranks - 1), 0),
            Check(
                f"{ranks} ranks: messages, ring",
                f"O(N): at most {2 * ranks}",
                f"{ring['messages']:g}",
                ring["messages"] <= 2 * ranks,
            ),
            exceeds(
                f"{ranks} ranks: time, naive against ring", 1e3 * naive["elapsed_s"], 1e3 * ring["elapsed_s"], " ms"
            ),
        ]
    return checks


WHY = {
    "messages, ring": "each of N ranks passes on N - 1 parts: N (N-1) messages too. O(N) are the rounds.",
    "time, naive against ring": "both receive the same bytes, and a naive all-gather waits for one latency, a ring for "
    "N - 1.",
}

PAPER = Paper(
    title="Messages of a naive all-gather and of a ring",
    citation="Legion 2025. Phase 1.3 progress report, Known Limitations",
    claim="A naive all-gather takes O(N^2) messages and a ring O(N), which is more efficient.",
    setting="`simcluster bench collective` all-gathers 8 MB on a gigabit star of 4 to 16 hosts, 100 us from host to "
    "host.",
    expected="N (N-1) messages against no more than 2 N, and less time with the ring.",
    measure=measure,
    missed={f"{ranks} ranks: {what}": why for ranks in (4, 8, 16) for what, why in WHY.items()},
)
