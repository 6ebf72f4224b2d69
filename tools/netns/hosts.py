"""Hosts of a topology as network namespaces, joined by veth pairs that `tc tbf` shapes.

A namespace exists as long as the process that holds it. When this process ends in any way, even by
SIGKILL, the kernel kills the holders, so nothing is left. Namespaces have no names, so concurrent
runs do not conflict. Each link is a veth pair, or a relay if it has a latency, with a separate
network. Each host has one address, and routes to all others as in the topology. Switches are hosts
that forward. The launcher has a namespace with an unshaped link to every host, like a management
network, so heartbeats do not cross the links that are measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from simcluster.topology import Link, Topology
from tools.netns.relay import relay

Ends: TypeAlias = "Sequence[tuple[str, str]]"
"""(host, address) for each of the two ends of a link."""

TOOLS = ("ip", "tc", "sysctl", "nsenter", "unshare", "setpriv", "chrt")
PACKAGES = "iproute2, procps and util-linux"
LAUNCHER = "the launcher"
LAUNCHER_ADDRESS = "10.79.255.1"

CONGESTION_CONTROL = "reno"
"""A congestion control that every kernel offers to a namespace.

BBR would keep probing the links.
"""

BURST_BYTES = 2000
BURST_S = 560e-6
SLOW_BPS = 50e6 / 8
"""The burst that a link may send after a pause: BURST_BYTES up to SLOW_BPS, otherwise BURST_S.

BURST_BYTES exceeds one packet, so that a late timer does not cost bandwidth. At 1 Gbit/s, BURST_S
exceeds the 64 kB that the kernel handles as one piece, because two cores are too slow to handle
single packets.
"""

PACKET_BYTES = 1514
QUEUE_BYTES = 16_000_000
"""The length of a queue, which holds all bytes in flight so that no packet is dropped."""


def missing() -> str | None:
    """Return the reason why this machine cannot make hosts, or None if it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"no {', '.join(lacking)} here: install {PACKAGES}"
    try:
        with hold() as pid:
            _in(pid, "ip", "link", "add", "name", "a", "type", "veth", "peer", "name", "b")
            _in(pid, "tc", "qdisc", "add", "dev", "a", "root", *_tbf(1e6))
            _in(pid, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}")
    except RuntimeError as error:
        return f"no network namespaces with shaped links here: {error}"
    return None


@contextmanager
def hold() -> Iterator[int]:
    """Hold a new, empty network namespace until the end of the block.

    Yield the pid of its holder.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            _, words = holder.communicate()
            raise RuntimeError(f"unshare --net: {words.decode().strip()}")
        yield holder.pid
    finally:
        holder.kill()
        holder.communicate()


@dataclass(frozen=True)
class Hosts:
    """The hosts of a topology.

    By node name, it has holders' pids, addresses, and pinned *cores*, if any.
    """

    pids: Mapping[str, int]
    addresses: Mapping[str, str]
    cores: Mapping[str, int] = field(default_factory=dict)

    def command(self, host: str, *command: str) -> list[str]:
        """Return the command line that runs *command* on *host* until this process ends."""
        enter = ["nsenter", "--target", str(self.pids[host]), "--net"]
        pinned = ["taskset", "--cpu-list", str(self.cores[host])] if host in self.cores else []
        return ["setpriv", "--pdeathsig", "KILL", *enter, *pinned, *command]


@contextmanager
def hosts_of(topology: Topology) -> Iterator[Hosts]:
    """Make the hosts and links of *topology*, and remove them at the end of the block.

    Raise RuntimeError with the kernel's message if this fails.
    """
    with ExitStack() as stack:
        names = [*topology.nodes, LAUNCHER]
        pids = {name: stack.enter_context(hold()) for name in names}
        addresses = {name: f"10.77.0.{index + 1}" for index, name in enumerate(topology.nodes)}
        addresses[LAUNCHER] = LAUNCHER_ADDRESS
        for name in names:
            _prepare(pids[name], addresses[name])
        for index, link in enumerate(topology.links):
            device = f"link{index}"
            ends = [(link.a, f"10.78.{index}.1"), (link.b, f"10.78.{index}.2")]
            if link.latency_s:
                stack.enter_context(relay(pids[link.a], pids[link.b], device, link.latency_s))
                _address(pids, ends, device)
            else:
                _lay_veth(pids, ends, device)
            for name, _ in ends:
                _shape(topology, name, link, pids[name], device, addresses)
        for index, name in enumerate(topology.workers):
            _connect_launcher(pids, name, addresses[name], index)
        for name in topology.nodes:
            _route(topology, name, pids[name], addresses)
        yield Hosts(pids, addresses)


def _prepare(pid: int, address: str) -> None:
    """Set up a host: loopback, its address, forwarding, and the congestion control."""
    _in(pid, "ip", "link", "set", "lo", "up")
    _in(pid, "ip", "address", "add", f"{address}/32", "dev", "lo")
    _in(
        pid,
        "sysctl",
        "-qw",
        "net.ipv4.ip_forward=1",
        f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}",
        "net.ipv4.tcp_no_metrics_save=1",  # a run must not inherit windows from earlier ones
    )


def _connect_launcher(pids: Mapping[str, int], name: str, address: str, index: int) -> None:
    here, there = f"10.79.{index}.1", f"10.79.{index}.2"
    _lay_veth(pids, [(name, here), (LAUNCHER, there)], f"lane{index}")
    _in(pids[name], "ip", "route", "add", LAUNCHER_ADDRESS, "via", there, "src", address)
    _in(pids[LAUNCHER], "ip", "route", "add", address, "via", here, "src", LAUNCHER_ADDRESS)


def _lay_veth(pids: Mapping[str, int], ends: Ends, device: str) -> None:
    (a, _), (b, _) = ends
    peer = ["peer", "name", device, "netns", str(pids[b])]
    _in(pids[a], "ip", "link", "add", "name", device, "type", "veth", *peer)
    _address(pids, ends, device)


def _address(pids: Mapping[str, int], ends: Ends, device: str) -> None:
    for (name, address), (_, other) in zip(ends, reversed(ends), strict=True):
        _in(pids[name], "ip", "address", "add", address, "peer", other, "dev", device)
        _in(pids[name], "ip", "link", "set", device, "up")


def _route(topology: Topology, name: str, pid: int, addresses: Mapping[str, str]) -> None:
    """Add routes from *name* to every worker, each over the first link of the topology's route."""
    for other in topology.workers:
        if other != name:
            hop = topology.route(name, other)[0]
            index = topology.links.index(hop.link)
            gateway = f"10.78.{index}.{2 if hop.forward else 1}"
            _in(pid, "ip", "route", "add", addresses[other], "via", gateway, "src", addresses[name])


def _shape(topology: Topology, name: str, link: Link, pid: int, device: str, addresses: Mapping[str, str]) -> None:
    """Limit *device* of *name* to the rate of *link*, and share it fairly among pairs of nodes.

    Linux hosts and many routers queue fairly (fq_codel). Not every kernel has such a queue, so
    there is a class for each pair: all classes borrow, packet by packet, from a parent class with a
    higher rate than the shaper's.
    """
    tc = partial(_in, pid, "tc")
    tc("qdisc", "add", "dev", device, "root", "handle", "1:", *_tbf(link.bandwidth_Bps))
    plenty = f"{round(link.bandwidth_Bps * 80)}bit"
    tc("qdisc", "add", "dev", device, "parent", "1:1", "handle", "2:", "htb", "default", "2")
    tc("class", "add", "dev", device, "parent", "2:", "classid", "2:1", "htb", "rate", plenty)
    pairs = [
        (source, target)
        for source in topology.workers
        for target in topology.workers
        if any(hop.link is link and hop.source == name for hop in topology.route(source, target))
    ]
    lend = ["rate", "8kbit", "ceil", plenty, "quantum", str(PACKET_BYTES)]
    for number, (source, target) in enumerate(pairs, start=2):
        tc("class", "add", "dev", device, "parent", "2:1", "classid", f"2:{number}", "htb", *lend)
        tc("qdisc", "add", "dev", device, "parent", f"2:{number}", "bfifo", "limit", str(QUEUE_BYTES))
        between = ["match", "ip", "src", addresses[source], "match", "ip", "dst", addresses[target]]
        flow = ["flowid", f"2:{number}"]
        tc("filter", "add", "dev", device, "parent", "2:", "protocol", "ip", "u32", *between, *flow)


def _tbf(bandwidth_Bps: float) -> list[str]:
    rate = f"{round(bandwidth_Bps * 8)}bit"
    burst_bytes = BURST_BYTES if bandwidth_Bps <= SLOW_BPS else round(bandwidth_Bps * BURST_S)
    return ["tbf", "rate", rate, "burst", str(burst_bytes), "limit", str(QUEUE_BYTES)]


def _in(pid: int, *command: str) -> None:
    result = subprocess.run(
        ["nsenter", "--target", str(pid), "--net", *command], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(result.stderr or result.stdout).strip()}")
