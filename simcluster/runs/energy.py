"""The energy of a run, and the price of its devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simcluster.runs.record import RunRecord
    from simcluster.topology import Device, Topology


class Bill(NamedTuple):
    """*joules* and *price_usd* of a node, or of all; None where a device that they are of does not say."""

    joules: float | None
    price_usd: float | None


def bills(topology: Topology, record: RunRecord) -> dict[str, Bill]:
    """Each node's bill, by its name. Nodes stay switched on until the run ends, whenever their own part does."""
    found = {}
    for node in record.nodes:
        device = topology.nodes[node.name].device
        assert device is not None, "a worker has a device"
        found[node.name] = bill(device, node.compute_s, record.lasted_s)
    return found


def bill(device: Device, compute_s: float, elapsed_s: float) -> Bill:
    """That of *device* in a run of *elapsed_s*, in which it worked for *compute_s*.

    Working it draws *power_busy_W*, for the rest *power_idle_W*: sending and receiving count as rest. Switches and
    cables are not counted. The price is that of the whole time, as a device that waits is paid for as well.
    """
    joules = None
    if device.power_idle_W is not None and device.power_busy_W is not None:
        rest_s = max(0.0, elapsed_s - compute_s)
        joules = compute_s * device.power_busy_W + rest_s * device.power_idle_W
    price_usd = None if device.price_USD_per_h is None else device.price_USD_per_h * elapsed_s / 3600
    return Bill(joules, price_usd)


def total(all_bills: Iterable[Bill]) -> Bill:
    """The sum of all; a part that any of them lacks is None, since a sum without it would look like the whole."""
    known = list(all_bills)
    return Bill(_sum(bill.joules for bill in known), _sum(bill.price_usd for bill in known))


def _sum(parts: Iterable[float | None]) -> float | None:
    known = list(parts)
    return sum(part for part in known if part is not None) if known and None not in known else None
