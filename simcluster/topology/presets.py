"""Devices and links that people own, each with the source of its numbers.

This file is a table. Every number is what software gets, not what the box says: a link's bandwidth is what
TCP carries, a device's rate what a large fp32 matrix product reaches. Where nothing was measured, *source*
says "estimate" and how it was made. Whoever knows better overrides a number in the topology file, or
measures.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.topology.model import Device, Duplex, link_numbers
from simcluster.units import parse_bandwidth, parse_latency, parse_rate, parse_size

# Huebner, Hu, Peng, Markidis: Apple vs. Oranges: Evaluating the Apple Silicon M-Series SoCs for HPC
# Performance and Efficiency, 2025, arXiv:2502.05317.
_M4_MEASURED = "GPU, measured: 2.9 TFLOP/s fp32 matrix product and 103 GB/s STREAM, arXiv:2502.05317"
_TWO_THIRDS = "estimate: two thirds of that, about what the M4 was measured to reach (arXiv:2502.05317)"
_MEMORY = "memory 0.86 of Apple's figure, as the M4 reaches 103 of 120 GB/s"


def _device(name: str, flops: str, memory_bandwidth: str, memory: str, source: str) -> Device:
    return Device(name, parse_rate(flops), parse_bandwidth(memory_bandwidth), parse_size(memory), source=source)


_DEVICES = [
    _device(
        "mac-mini-m1",
        "1.73 TFLOP/s",
        "59 GB/s",
        "16 GB",
        f"GPU of 8 cores, 2.6 TFLOP/s peak by Apple; {_TWO_THIRDS}; {_MEMORY} (68.3 GB/s)",
    ),
    _device(
        "mac-mini-m2",
        "2.4 TFLOP/s",
        "86 GB/s",
        "16 GB",
        f"GPU of 10 cores, 3.6 TFLOP/s peak by Apple; {_TWO_THIRDS}; {_MEMORY} (100 GB/s)",
    ),
    _device(
        "mac-mini-m2-pro",
        "3.84 TFLOP/s",
        "172 GB/s",
        "16 GB",
        "GPU of 16 cores; estimate: 1.6 times the mac-mini-m2 of 10 cores of the same generation; "
        f"{_MEMORY} (200 GB/s)",
    ),
    _device("mac-mini-m4", "2.9 TFLOP/s", "103 GB/s", "16 GB", _M4_MEASURED),
    _device(
        "mac-mini-m4-pro",
        "4.64 TFLOP/s",
        "235 GB/s",
        "24 GB",
        f"GPU of 16 cores; estimate: 1.6 times the measured M4 of 10 cores (arXiv:2502.05317); {_MEMORY} (273 GB/s)",
    ),
    _device(
        "macbook-air-m1",
        "1.51 TFLOP/s",
        "59 GB/s",
        "8 GB",
        f"GPU of 7 cores; estimate: 7/8 of the mac-mini-m1; {_MEMORY} (68.3 GB/s)",
    ),
    _device(
        "macbook-air-m2",
        "1.92 TFLOP/s",
        "86 GB/s",
        "8 GB",
        f"GPU of 8 cores; estimate: 8/10 of the mac-mini-m2; {_MEMORY} (100 GB/s)",
    ),
    _device(
        "macbook-air-m3",
        "1.88 TFLOP/s",
        "86 GB/s",
        "8 GB",
        f"GPU of 8 cores; estimate: 8/10 of the macbook-pro-m3; {_MEMORY} (100 GB/s)",
    ),
    _device(
        "macbook-pro-m3",
        "2.35 TFLOP/s",
        "86 GB/s",
        "16 GB",
        "GPU of 10 cores, 3.53 TFLOP/s peak (estimate: 1280 lanes x 2 x 1.38 GHz); "
        f"{_TWO_THIRDS}; {_MEMORY} (100 GB/s)",
    ),
    _device(
        "macbook-pro-m4",
        "2.9 TFLOP/s",
        "103 GB/s",
        "16 GB",
        f"the chip of the mac-mini-m4, with a fan as well: {_M4_MEASURED}",
    ),
    _device(
        "raspberry-pi-4",
        "22 GFLOP/s",
        "5.5 GB/s",
        "4 GB",
        "CPU, 4 x Cortex-A72; estimate: twice the 11.4 GFLOP/s fp64 HPL measured on the Compute Module 4 "
        "(geerlingguy/top500-benchmark issue 33), as a vector holds twice as many fp32; memory 5.56 GB/s "
        "STREAM, measured (sci-pi.org.uk/bench/stream.html)",
    ),
    _device(
        "raspberry-pi-5",
        "60 GFLOP/s",
        "10 GB/s",
        "8 GB",
        "CPU, 4 x Cortex-A76; estimate: twice the 30.2 GFLOP/s fp64 HPL measured at 2.4 GHz "
        "(geerlingguy/top500-benchmark issue 18); memory estimate: 0.6 of LPDDR4X-4267 on 32 bits, 17.1 GB/s",
    ),
    _device(
        "jetson-orin-nano",
        "853 GFLOP/s",
        "54 GB/s",
        "8 GB",
        "GPU, 1024 CUDA cores x 2 x 625 MHz = 1.28 TFLOP/s peak; "
        "estimate: two thirds of that, as the M4's GPU reaches; "
        "memory estimate: 0.8 of NVIDIA's 68 GB/s",
    ),
    _device(
        "x86-laptop",
        "300 GFLOP/s",
        "38 GB/s",
        "16 GB",
        "CPU, 6 cores with AVX2 at 2.6 GHz under load: 6 x 32 x 2.6 = 499 GFLOP/s peak; estimate: 0.6 "
        "of that; memory estimate: 0.75 of dual-channel DDR4-3200, 51.2 GB/s",
    ),
]

# A TCP segment carries 1448 bytes (timestamps on) in 1538 bytes of wire: preamble, Ethernet, gap, IP and TCP.
_ETHERNET = "0.941 of the line rate: 1448 bytes of data in each 1538 on the wire; latency estimate: {}"
# Thunderbolt carries IP between two hosts as a host-to-host tunnel on one 20 Gb/s lane each way, not on the
# 40 Gb/s that the cable and its displays and disks have; and packets cost the hosts more than the lane.
_THUNDERBOLT = (
    "IP over Thunderbolt runs at 20 Gb/s each way, not at the cable's 40; 16.4 Gb/s of TCP measured from a "
    "MacBook Pro M2 (jiribrejcha.net)"
)
_THUNDERBOLT_LATENCY = (
    "latency estimate: half of the about 300 us that articles on RDMA in macOS 26.2 report for an exchange "
    "between Macs over TCP"
)


@dataclass(frozen=True)
class LinkType:
    """What a link of this type has unless the file says otherwise."""

    name: str
    bandwidth_Bps: float
    latency_s: float
    duplex: Duplex
    source: str

    def __str__(self) -> str:
        return link_numbers(self.bandwidth_Bps, self.latency_s, self.duplex)


def _link(name: str, bandwidth: str, latency: str, source: str, duplex: Duplex = "full") -> LinkType:
    return LinkType(name, parse_bandwidth(bandwidth), parse_latency(latency), duplex, source)


_LINKS = [
    _link(
        "thunderbolt-3",
        "16 Gbps",
        "150 us",
        f"estimate: as Thunderbolt 4, whose lanes are as fast. {_THUNDERBOLT}; {_THUNDERBOLT_LATENCY}",
    ),
    _link("thunderbolt-4", "16.4 Gbps", "150 us", f"{_THUNDERBOLT}; {_THUNDERBOLT_LATENCY}"),
    _link(
        "thunderbolt-5",
        "32.8 Gbps",
        "150 us",
        "estimate: twice Thunderbolt 4, as its lanes are twice as fast; RDMA, without TCP's cost, measured "
        f"39.8 Gb/s between two Macs (hellas-ai/thunderbolt-ibverbs PR 28); {_THUNDERBOLT_LATENCY}",
    ),
    _link("ethernet-100m", "94.1 Mbps", "200 us", _ETHERNET.format("0.4 ms of ping")),
    _link("ethernet-1g", "941 Mbps", "100 us", _ETHERNET.format("0.2 ms of ping")),
    _link("ethernet-2.5g", "2.353 Gbps", "80 us", _ETHERNET.format("0.16 ms of ping")),
    _link("ethernet-10g", "9.41 Gbps", "40 us", _ETHERNET.format("0.08 ms of ping")),
    _link(
        "wifi-5",
        "480 Mbps",
        "2 ms",
        "estimate: 0.55 of 866.7 Mb/s (two streams, 80 MHz) is left for data; both ways share the air",
        "half",
    ),
    _link(
        "wifi-6",
        "720 Mbps",
        "1.5 ms",
        "estimate: 0.6 of 1201 Mb/s (two streams, 80 MHz) is left for data; both ways share the air",
        "half",
    ),
    _link("wan", "100 Mbps", "20 ms", "estimate: a fibre line at both ends, in one country, 40 ms of ping"),
]

DEVICES: dict[str, Device] = {device.name: device for device in _DEVICES}
LINKS: dict[str, LinkType] = {link.name: link for link in _LINKS}
