"""Invariants of counts: samples against independent counts, and bytes sent against bytes
received.
"""

from __future__ import annotations

from tools.swarm.checks.outcome import Found
from tools.swarm.hits import Hits
from tools.swarm.play import Played
from tools.swarm.promise import restores_bits

COUNTED = ("sync_ps", "k_sync", "ssp", "softsync", "k_async", "edp")
"""Algorithms with servers that count the gradients that they apply.

Each gradient is of one batch.
"""


def check_samples(played: Played, before: Played, hits: Hits) -> Found:
    """Yield each broken invariant of the sample counts. *before* is the undisturbed run."""
    samples, record = played.summary.get("samples"), played.record
    if samples is None or record is None:
        return
    least, most = sizes_of(played)
    began_again = "restarts" in played.summary or "resumed" in played.summary
    if min(samples.values()) < 0 or samples["repeated"] > samples["used"]:
        yield "samples", f"{samples}"
    if not began_again and not played.counted.joined:
        draws = played.counted.draws[-1]
        if not draws * least <= samples["used"] + samples["lost"] <= draws * most:
            yield "drawn = used + lost", f"{draws} batches of {least} to {most} drawn, {samples}"
    # A restarted server counts from zero.
    server_lives = played.case.workers[0] not in hits.gone
    is_counted = played.case.algorithm in COUNTED and _are_batches(played)
    if is_counted and played.is_done and not began_again and server_lives:
        applied = max((value for _, _, value in played.values("applied")), default=0.0)
        if not applied * least <= samples["used"] <= applied * most:
            yield "used = applied", f"{applied:g} batches of {least} to {most} applied, {samples}"
    by_time = hits.plan.time_s is not None
    # No other rank has the lost state.
    is_forgotten = len(played.case.workers) == 1 and bool(hits.comers)
    if began_again and not is_forgotten and played.is_done and restores_bits(played.case, hits) and not by_time:
        expected = before.summary.get("samples", {}).get("used")
        if not played.lost and not played.summary.get("regroups") and samples["used"] != expected:
            yield "a restored run uses what an undisturbed one does", f"{samples}, and {expected} undisturbed"


def check_bytes(played: Played) -> Found:
    """Check that the bytes that arrived or were dropped are at most the bytes sent.

    The backend also checks its own count.
    """
    if played.record is None:
        return
    sent = sum(node.bytes_sent for node in played.record.nodes)
    received = sum(node.bytes_received for node in played.record.nodes)
    dropped = sum(row["dropped_bytes"] or 0 for row in played.happened) if "restarts" not in played.summary else 0
    if received + dropped > sent:
        yield "bytes", f"{received} received and {dropped} dropped of {sent} sent"


def _are_batches(played: Played) -> bool:
    """Return whether the server applies gradients, each of one batch, and not weights."""
    return played.case.settings.get("push", "gradients") == "gradients"


def sizes_of(played: Played) -> tuple[int, int]:
    """Return (the smallest, the largest) batch size."""
    sizes = played.case.batch_sizes
    if not sizes:  # sizes depend on the devices
        assert played.plan is not None
        sizes = sorted(played.plan.workload.batch_sizes)
    return sizes[0], sizes[-1]
