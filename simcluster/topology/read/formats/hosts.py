"""Read lists of hosts: of MPI and torchrun, Ansible's inventories, MLX's JSON.

They have names and addresses. The links are a star; options give their numbers, and
`simcluster calibrate` measures them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from simcluster.documents.recognise import IPV6
from simcluster.errors import UsageError
from simcluster.topology.read.formats.cluster import MOST_NODES, ForeignCluster, distinct_names, printable
from simcluster.topology.read.formats.node_link import parse_json
from simcluster.topology.read.nodes import MOST_PROCESSES

HUB = "network"
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_IN_BRACKETS = re.compile(rf"(?P<host>([^@\[]+@)?)\[(?P<address>{IPV6})\](:(?P<number>.*))?")
_MOST_RANGES = 8
_COLON = f":N, up to {MOST_PROCESSES}, is N processes"


def expand(text: str, file: str, line: int | None = None, *, between: str = "-") -> list[str]:
    """Return the names that *text* stands for: node[01-03,7] for node01, node02, node03 and node7."""
    found = _RANGE.search(text)
    if found is None:
        return [text]
    if text.count("[") > _MOST_RANGES:
        raise UsageError("host", f"{text.count('[')} ranges", f"at most {_MOST_RANGES}", file, line)
    names: list[str] = []
    rest = expand(text[found.end() :], file, line, between=between)
    for part in found[1].split(","):
        first, _, last = part.partition(between)
        values: Sequence[str | int]
        if re.fullmatch(r"\d{1,9}", first) and re.fullmatch(r"\d{0,9}", last):
            values = range(int(first), int(last or first) + 1)
        elif between == ":" and re.fullmatch(r"[a-z]:[a-z]|[A-Z]:[A-Z]", part):  # Ansible's
            values = [chr(code) for code in range(ord(first), ord(last) + 1)]
        else:
            raise UsageError("host", repr(part), f"numbers, as in node[01{between}08]", file, line)
        if not values:
            raise UsageError("host", f"the backward range {part!r}", "its lower end first", file, line)
        if len(values) * len(rest) + len(names) > MOST_NODES:
            raise UsageError("host", f"more than {MOST_NODES:,} names in {text[:60]!r}", "fewer", file, line)
        names += [f"{text[: found.start()]}{value:0>{len(first)}}{end}" for value in values for end in rest]
    return names


def _parted(word: str) -> tuple[str, str]:
    """Return (host, what follows its colon) of host:N, [ADDRESS]:N or an IPv6 address."""
    if (found := _IN_BRACKETS.fullmatch(word)) is not None:
        return found["host"] + found["address"], found["number"] or ""
    host, _, number = word.partition(":")
    return (word, "") if ":" in number else (host, number)


class HostList:
    """The hosts of a list, with what was ignored of them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._hosts: dict[str, dict[str, Any]] = {}
        self._ignored: dict[str, int] = {}
        self.notes = ["links are a star around a switch that stands for the network of all hosts"]

    def add(self, host: str, ssh: str | None, line: int | None, keys: dict[str, Any], *, again: bool = False) -> None:
        """Add *host*, reached by *ssh* if this names a user; *again* lets it stand in several groups."""
        if host in self._hosts and not again:
            raise UsageError("host", f"{host!r} a second time", "each host once", self._file, line)
        own = {"address": host, **keys} | ({"ssh": ssh} if ssh else {})
        self._hosts[host] = self._hosts.get(host, {}) | own

    def ignore(self, words: Iterable[str]) -> None:
        for word in words:
            self._ignored[word] = self._ignored.get(word, 0) + 1

    def star(self) -> ForeignCluster:
        """Return the hosts around a switch that stands for their network."""
        if not self._hosts or HUB in self._hosts:
            raise UsageError("hosts", "none" if not self._hosts else f"one called {HUB}", "hosts", self._file)
        found = ForeignCluster(notes=self.notes)
        for host, name in distinct_names({host: host for host in self._hosts}).items():
            found.nodes[name] = self._hosts[host]
            found.link(name, HUB)
        found.nodes[HUB] = {"kind": "switch"}
        words = [printable(f"{name:.40} (on {count})") for name, count in list(self._ignored.items())[:20]]
        found.warnings += [f"ignored on hosts: {', '.join(words)}"] if words else []
        return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        plain = re.split(r"[#;]", line, maxsplit=1)[0].strip()
        if plain:
            yield number, plain


def read_hosts(text: str, file: str) -> ForeignCluster:
    """Return a star of the hosts of MPI's or torchrun's list: a host a line, perhaps with slots=N or :N.

    :N are processes, as in MPICH, up to MOST_PROCESSES, and a port above that.
    """
    hosts = HostList(file)
    for number, line in _lines(text):
        first, *words = line.replace("=", " = ").split()
        given = " ".join(words).replace(" = ", "=").split()
        host, colon = _parted(first)
        is_count = colon.isdecimal() and len(colon) < 9 and int(colon) <= MOST_PROCESSES
        settings = dict(word.partition("=")[::2] for word in given)
        slots = settings.pop("slots", colon if is_count else "")
        if is_count and _COLON not in hosts.notes:
            hosts.notes.append(_COLON)
        for one in expand(host, file, number):
            processes = {"nproc_per_node": int(slots)} if slots.isdecimal() and len(slots) < 9 else {}
            hosts.add(one.rpartition("@")[2], one if "@" in one else None, number, processes)
        hosts.ignore([*settings, *([":N"] if colon and not is_count else [])])
    return hosts.star()


def read_ansible(text: str, file: str) -> ForeignCluster:
    """Return a star of the hosts of an Ansible inventory in INI form."""
    hosts = HostList(file)
    known: dict[str, dict[str, str]] = {}
    is_hosts = True
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if line.startswith("[") and not _IN_BRACKETS.fullmatch(line.split()[0]):
            is_hosts = ":" not in line.partition("]")[0]  # [group:vars] and [group:children] list no hosts
        elif line and line[0] not in "#;":
            if is_hosts:
                _add_ansible(hosts, known, line, file, number)
            else:
                hosts.ignore(["group settings"])
    return hosts.star()


def _add_ansible(hosts: HostList, known: dict[str, dict[str, str]], line: str, file: str, number: int) -> None:
    """Add the hosts of a *line*, each with all that is *known* of it from this line and earlier ones."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # the line is not shown: it may have a password
        raise UsageError("host", "a quote without its end", "each quote in pairs", file, number) from None
    host, *settings = words
    host = _parted(host)[0] if _IN_BRACKETS.fullmatch(host) else host
    given = dict(word.partition("=")[::2] for word in settings if "=" in word)
    mine = {key: value for key in ("ansible_user", "ansible_host") if (value := given.pop(key, ""))}
    for one in expand(host, file, number, between=":"):
        keys = known.setdefault(one, {})
        keys |= mine
        address = keys.get("ansible_host", one)
        ssh = f"{keys['ansible_user']}@{address}" if "ansible_user" in keys else None
        hosts.add(one, ssh, number, {"address": address}, again=True)
    hosts.ignore([*given, *["words without ="] * any("=" not in word for word in settings)])


def read_mlx(text: str, file: str) -> ForeignCluster:
    """Return a star of the hosts of MLX's list: [{"ssh": NAME, "ips": [ADDRESS]}]."""
    hosts = HostList(file)
    for index, entry in enumerate(parse_json(text, file)):
        ssh = entry.get("ssh") if isinstance(entry, dict) else None
        ips = entry.get("ips", []) if isinstance(entry, dict) else []
        if (
            not isinstance(ssh, str)
            or not ssh
            or not isinstance(ips, list)
            or not all(isinstance(ip, str) for ip in ips)
        ):
            raise UsageError(f"[{index}]", "another entry", '{"ssh": NAME, "ips": [ADDRESS, ...]}', file)
        hosts.add(ssh.rpartition("@")[2], ssh, None, {"address": ips[0]} if ips else {})
        hosts.ignore([*(key for key in entry if key not in ("ssh", "ips")), *(["further ips"] if ips[1:] else [])])
    return hosts.star()
