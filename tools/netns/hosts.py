"""Hosts of a topology as network namespaces of this machine, joined by veth pairs that `tc tbf` shapes.

A namespace lives as long as the process that holds it, and holders are killed by the kernel when this process ends,
however it ends: nothing is left behind, not even after SIGKILL. No namespace has a name, so runs beside each other do
not meet. Every link is a veth pair with a network of its own; every host has one address for all, and routes to all
others that follow the topology's; switches are hosts that forward. The launcher sits in a namespace of its own with an
unshaped way to every host, as a management network is, so that heartbeats do not cross the links that are measured.
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
"""(host, address) of both ends of a link."""

TOOLS = ("ip", "tc", "sysctl", "nsenter", "unshare", "setpriv", "chrt")
PACKAGES = "iproute2, procps and util-linux"
LAUNCHER = "the launcher"
LAUNCHER_ADDRESS = "10.79.255.1"

CONGESTION_CONTROL = "reno"
"""The kernel lets a namespace choose this one whatever it chooses itself; BBR would probe the links all the time."""

BURST_BYTES, BURST_S, SLOW_BPS = 2000, 560e-6, 50e6 / 8
"""What a link may send at once after a pause: more than one packet, or a late timer would cost bandwidth.

One that is not slow may send for so long. At 1 Gbit/s that is more than the 64 kB that the kernel handles as one piece;
packet by packet, two cores do not keep up.
"""

PACKET_BYTES = 1514
QUEUE_BYTES = 16_000_000
"""Room for all that may be on its way: nothing is dropped."""


def missing() -> str | None:
    """Why no hosts can be made here, or None if they can."""
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
    """The process id of one that holds a new, empty network namespace until the end of the block."""
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
    """The hosts of a topology: process ids of those that hold them, addresses and own *cores*, if any, by node name."""

    pids: Mapping[str, int]
    addresses: Mapping[str, str]
    cores: Mapping[str, int] = field(default_factory=dict)

    def command(self, host: str, *command: str) -> list[str]:
        """*command* as it runs on *host*; it dies with this process."""
        enter = ["nsenter", "--target", str(self.pids[host]), "--net"]
        pinned = ["taskset", "--cpu-list", str(self.cores[host])] if host in self.cores else []
        return ["setpriv", "--pdeathsig", "KILL", *enter, *pinned, *command]


@contextmanager
def hosts_of(topology: Topology) -> Iterator[Hosts]:
    """The hosts and links of *topology* until the end of the block. Raises RuntimeError with what the kernel said."""
    with ExitStack() as stack:
        names = [*topology.nodes, LAUNCHER]
        pids = {name: stack.enter_context(hold()) for name in names}
        addresses = {name: f"10.77.0.{index + 1}" for index, name in enumerate(topology.nodes)}
        addresses[LAUNCHER] = LAUNCHER_ADDRESS
        for name in names:
            _prepare(pids[name], addresses[name])
        for index, link in enumerate(topology.links):
            device, ends = f"link{index}", [(link.a, f"10.78.{index}.1"), (link.b, f"10.78.{index}.2")]
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
    """Loopback, the host's one address, forwarding, and a congestion control that does not depend on the machine."""
    _in(pid, "ip", "link", "set", "lo", "up")
    _in(pid, "ip", "address", "add", f"{address}/32", "dev", "lo")
    _in(
        pid,
        "sysctl",
        "-qw",
        "net.ipv4.ip_forward=1",
        f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}",
        "net.ipv4.tcp_no_metrics_save=1",  # a run does not inherit from the one before
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
    """From *name* to every worker by the first link of the topology's route; a switch forwards likewise."""
    for other in topology.workers:
        if other != name:
            hop = topology.route(name, other)[0]
            index = topology.links.index(hop.link)
            gateway = f"10.78.{index}.{2 if hop.forward else 1}"
            _in(pid, "ip", "route", "add", addresses[other], "via", gateway, "src", addresses[name])


def _shape(topology: Topology, name: str, link: Link, pid: int, device: str, addresses: Mapping[str, str]) -> None:
    """Lets *device* of *name* send as fast as *link* says, by turns for those whose packets wait.

    Linux hosts and many routers queue fairly (fq_codel). Where the kernel has no such queue, a class for each pair does
    the same: all of them borrow, packet by packet, from one that has more to give than the shaper lets through.
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
