"""Links that people own, with the source of every number. Devices are in `devices`.

This file is a table. Every bandwidth is what TCP carries, not the nominal figure. If a number was
not measured, *source* says "estimate" and how the estimate was made. Better numbers belong in the
topology file, or come from `simcluster calibrate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.topology.model.link import Duplex, LinkNumbers
from simcluster.topology.presets.devices import DEVICES
from simcluster.units import parse_bandwidth, parse_latency

# A TCP segment with timestamps carries 1448 bytes and takes 1538 bytes on the wire, with preamble,
# Ethernet, gap, IP and TCP.
_ETHERNET = "0.941 of the line rate: 1448 bytes of data in each 1538 on the wire; latency estimate: {}"
# Thunderbolt tunnels IP between two hosts over one 20 Gb/s lane in each direction, not over the
# 40 Gb/s that displays and disks get. Per packet, the hosts take more time than the lane.
_THUNDERBOLT = (
    "IP over Thunderbolt runs at 20 Gb/s each way, not at the cable's 40; 16.4 Gb/s of TCP measured from a "
    "MacBook Pro M2 (jiribrejcha.net)"
)
_THUNDERBOLT_LATENCY = (
    "latency estimate: half of the about 300 us that articles on RDMA in macOS 26.2 report for an exchange "
    "between Macs over TCP"
)


@dataclass(frozen=True)
class LinkType(LinkNumbers):
    """A type of link: its numbers are the defaults for all links of this type in a file."""

    name: str
    bandwidth_Bps: float
    latency_s: float
    duplex: Duplex
    source: str


def _link(numbers: str, source: str, duplex: Duplex = "full") -> LinkType:
    """Return the type of link with *numbers*, "NAME: BANDWIDTH, LATENCY"."""
    name, _, parts = numbers.partition(": ")
    bandwidth, latency = parts.split(", ")
    return LinkType(name, parse_bandwidth(bandwidth), parse_latency(latency), duplex, source)


_LINKS = [
    _link(
        "thunderbolt-3: 16 Gbps, 150 us",
        f"estimate: as Thunderbolt 4, whose lanes are as fast. {_THUNDERBOLT}; {_THUNDERBOLT_LATENCY}",
    ),
    _link("thunderbolt-4: 16.4 Gbps, 150 us", f"{_THUNDERBOLT}; {_THUNDERBOLT_LATENCY}"),
    _link(
        "thunderbolt-5: 32.8 Gbps, 150 us",
        "estimate: twice Thunderbolt 4, as its lanes are twice as fast; RDMA, without TCP's cost, measured "
        f"39.8 Gb/s between two Macs (hellas-ai/thunderbolt-ibverbs PR 28); {_THUNDERBOLT_LATENCY}",
    ),
    _link("ethernet-100m: 94.1 Mbps, 200 us", _ETHERNET.format("0.4 ms of ping")),
    _link("ethernet-1g: 941 Mbps, 100 us", _ETHERNET.format("0.2 ms of ping")),
    _link("ethernet-2.5g: 2.353 Gbps, 80 us", _ETHERNET.format("0.16 ms of ping")),
    _link("ethernet-10g: 9.41 Gbps, 40 us", _ETHERNET.format("0.08 ms of ping")),
    _link(
        "wifi-5: 480 Mbps, 2 ms",
        "estimate: 0.55 of 866.7 Mb/s (two streams, 80 MHz) is left for data; both ways share the air",
        "half",
    ),
    _link(
        "wifi-6: 720 Mbps, 1.5 ms",
        "estimate: 0.6 of 1201 Mb/s (two streams, 80 MHz) is left for data; both ways share the air",
        "half",
    ),
    _link(
        "loopback: 17 Gbps, 10 us",
        "estimate: TCP between two processes by uvloop, 2.1 GB/s and 20 us of round trip on a shared x86",
        "free",
    ),
    _link("wan: 100 Mbps, 20 ms", "estimate: a fibre line at both ends, in one country, 40 ms of ping"),
]

LINKS: dict[str, LinkType] = {link.name: link for link in _LINKS}

BETWEEN_MACHINES = tuple(name for name in LINKS if name.startswith("thunderbolt"))
"""The types of links that can only connect two machines, since no switches exist for them."""

__all__ = ["BETWEEN_MACHINES", "DEVICES", "LINKS", "LinkType"]
