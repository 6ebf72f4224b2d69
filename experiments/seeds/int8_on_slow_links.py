"""8-bit gradients: a quarter of the bytes, and on which links that saves time."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.frame import Check, Lab, Paper, agrees
from experiments.papers.frame.shelves import DIGITS

DEVICE = {"flops": "100 GFLOP/s", "memory_bandwidth": "50 GB/s", "operator_overhead": "10 us"}


def measured(lab: Lab, compression: str, bandwidth: str) -> tuple[float, float, float]:
    """Return (seconds, bytes that a worker sends, held-out loss)."""
    run = lab.run(
        topology={"generator": "star", "workers": 4, "latency": "100 us", "bandwidth": bandwidth, "device": DEVICE},
        algorithm={"name": "edp", "pull_interval": 10, "compression": compression},
        workload=DIGITS,
        stop={"steps": lab.pick(20, 60)},
    )
    sent = run.summary["nodes"]["n1"]["bytes_sent"]
    return run.summary["elapsed_s"], sent, float(run.summary["loss"])


def _no_worse(loss: float, whole_loss: float) -> Check:
    most = 1.05 * whole_loss
    return Check("held-out loss with int8", f"at most {most:.3g}", f"{loss:.3g}", loss <= most)


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for bandwidth, pays in (("10 Mbps", True), ("100 Mbps", True), ("10 Gbps", False)):
        (whole_s, whole_B, whole_loss), (small_s, small_B, small_loss) = (
            measured(lab, kind, bandwidth) for kind in ("none", "int8")
        )
        if bandwidth == "10 Mbps":
            checks += [
                agrees("bytes of a worker, f32 over int8", whole_B / small_B, 4, 0.1),
                _no_worse(small_loss, whole_loss),
            ]
        gain = whole_s / small_s
        expected = "above 1.2: it pays" if pays else "below 1: it costs"
        holds = gain > 1.2 if pays else gain < 1
        checks.append(Check(f"{bandwidth}: time without int8, over the time with it", expected, f"{gain:.3g}", holds))
    return checks


PAPER = Paper(
    title="8-bit gradients on slow links",
    citation="SmolCluster 2026. Training guide, EDP; with Legion 2025, Phase 1.3 progress report (INT8)",
    claim="8-bit gradients reduce the bandwidth by four, for links where it is short.",
    setting="`edp` on four machines around a switch, the seed's network for digits, `compression: int8`; encoding is "
    "device work.",
    expected="A quarter of a worker's bytes, to 2.5 %; a loss at most 5 % higher; time saved at 10 and 100 Mb/s, lost "
    "at 10 Gb/s.",
    measure=measure,
)
