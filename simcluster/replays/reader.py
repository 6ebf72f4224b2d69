"""The orders of a run, from its folder: all of them complete, or the reason why it cannot be replayed."""

from __future__ import annotations

import msgspec

from simcluster.errors import ABSENT, NotReplayable, Problem, UsageError
from simcluster.fault_plans.kinds import NEVER_JOINED, too_late
from simcluster.replays.order import Damaged, Order, unpack
from simcluster.runs.folder import ORDER, RunFolder


def read_orders(run: RunFolder) -> list[Order]:
    """Return one order per node, by rank; that of a lost node may be incomplete.

    Raises NotReplayable, or UsageError for a damaged file.
    """
    path = run.folder / ORDER
    if run.summary.get("resumed"):
        raise NotReplayable("a run that was resumed, whose checkpoint may be gone", "one that did not resume")
    if not path.is_file():
        why = "the simulator's own order is its seed" if run.summary["backend"] == "sim" else "order=false, or older"
        raise NotReplayable(f"no {ORDER} in {run.folder} ({why})", "a run on sockets that recorded its order")
    try:
        packed = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, list[bytes]])
        orders = {name: unpack(chunks) for name, chunks in packed.items()}
    except (OSError, msgspec.MsgspecError, Damaged) as error:
        raise UsageError(Problem(ORDER, f"something else in {path}", f"orders of nodes ({error})")) from None
    lost = run.summary.get("lost", {})
    late = [name for name, node in run.summary["nodes"].items() if node.get("incarnation")]
    late += [name for name, reason in lost.items() if reason in (NEVER_JOINED, too_late(ABSENT))]
    if late:
        raise NotReplayable(f"{', '.join(late)}, which joined late or rejoined", "a run that every node starts, once")
    for name in run.summary["nodes"]:
        if name not in orders or not (orders[name].whole or name in lost):
            raise NotReplayable(
                f"an incomplete order of {name}", "a run whose nodes handed in their orders, or were lost"
            )
    return [orders[name] for name in run.summary["nodes"]]
