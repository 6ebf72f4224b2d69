"""Recognise files of other tools by their suffix and first lines, before anything is parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from simcluster.errors import UsageError

HEAD_BYTES = 64 * 2**10
"""Limit on the bytes of a file that are looked at."""

READ = "GML, GraphML, node-link JSON, SimGrid's XML, SNDlib, `nvidia-smi topo -m`, Slurm's trees and lists of hosts"


@dataclass(frozen=True)
class FileForm:
    """A form of file with its *name* and its *title* in sentences.

    A file has this form if its suffix is one of *suffixes*, the root element of its XML is *root*,
    *pattern* is found in its head, and each of its lines matches *line*; parts that are empty do
    not count. *road* says what to do with a file that cannot be read as a topology.
    """

    name: str
    title: str
    pattern: str = ""
    root: str = ""
    line: str = ""
    suffixes: tuple[str, ...] = ()
    road: str = ""

    def fits(self, suffix: str, root: str, head: str) -> bool:
        if (self.suffixes and suffix not in self.suffixes) or (self.root and not re.fullmatch(self.root, root)):
            return False
        if self.line:
            lines = [line for line in map(str.strip, head.split("\n")) if line and line[0] not in "#;"]
            return bool(lines) and all(re.fullmatch(self.line, line) for line in lines)
        return re.search(self.pattern, head) is not None


_PLAIN = ("", ".txt", ".conf", ".cfg", ".ini", ".hosts", ".list")
_EMPTY = r"\A(?:[ \t]*(?:[#;][^\n]*)?\n)*"  # lines without content
IPV6 = r"[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f.]{0,15}){2,8}(%[A-Za-z0-9_.-]{1,16})?"
"""An address with colons, perhaps with the interface that leads to it."""

_HOST = rf"(?:[\w.-]+@)?(?:{IPV6}|\[{IPV6}\](?::\d+)?|[A-Za-z0-9][\w.\[\]-]*(?::\d+)?)"
_NO_TOPOLOGY = r"\A(?![\s\S]*\"nodes\"\s*:\s*\{)"  # the nodes of our topologies, which YAML reads, are a mapping
_HOSTS = r"\A(?:[ \t]*(?:[#;][^\n]*|[A-Za-z0-9][\w.:\[\]-]*(?:[ \t]+\w+=[^\n]*|[ \t]*))?\n)*"  # before a group
_SLOTS = r"(?:\s+(?:max[_-]?)?slots\s*=\s*\d+)"
_RUN = "is run by `simcluster run --script FILE`; if it defines an algorithm, by `--algorithm FILE:FUNCTION`"
_MEASURE = "is not read: read the output of `nvidia-smi topo -m` of that machine instead"
_TRACE = "is no topology and no experiment: `simcluster bench serving --trace` takes a trace of requests"
_ASTRA = "is not read: a generator makes a regular network (`simcluster list generators`); its GB/s and ns become units"

# The order matters: a file has the first form that fits.
FORMS = (
    FileForm("gml", "GML", r"\A\s*(?:\w+ [^\n\[]*\n\s*)*graph\s*\[", suffixes=(".gml", ".txt", "")),
    FileForm("gml", "GML", suffixes=(".gml",)),
    FileForm("graphml", "GraphML", root="graphml"),
    FileForm("graphml", "GraphML", suffixes=(".graphml",)),
    FileForm("simgrid", "a platform of SimGrid", root="platform"),
    FileForm("sndlib", "a network of SNDlib", "(?i)sndlib|<networkStructure", root="network"),  # libvirt has networks
    FileForm("sndlib", "a network of SNDlib", r"\A\s*\?SNDlib native format"),
    FileForm("nccl", "NCCL's XML of a machine's buses", root="system|graphs", road=_MEASURE),
    FileForm("xml", "XML", root=".+", road=f"is not read: these are: {READ}"),
    FileForm("nvidia", "the output of `nvidia-smi topo -m`", r"\A(?:\s|\x1b\[\d*m)*GPU0\b[^\n]*\n\s*GPU0\s+X\b"),
    FileForm("slurm", "Slurm's topology.conf", _EMPTY + r"[ \t]*(?i:SwitchName|BlockName)="),
    FileForm("slurm-yaml", "Slurm's topology.yaml", r"(?m)^[ \t]*-[ \t]*switch:[ \t]"),
    FileForm("astra", "a network of ASTRA-sim", r"(?m)^npus_count:", road=_ASTRA),
    FileForm("containerlab", "a lab of containerlab", r"(?m)^[ \t]*(?:-[ \t]*)?endpoints:"),
    FileForm("mlx", "a host list of MLX", r"\A\s*\[\s*\{[^{}]*\"ssh\"\s*:"),
    FileForm("jsonl", "JSON lines", r"\A\s*\{[^\n]*\}[ \t]*\n\s*\{[^\n]*\}", road=_TRACE),
    FileForm("node-link", "node-link JSON", _NO_TOPOLOGY, suffixes=(".json",)),
    FileForm("python", "a Python program", suffixes=(".py",), road=_RUN),
    FileForm("python", "a Python program", _EMPTY + r"(?:from [\w.]+ import |import [\w., ]+\n)", road=_RUN),
    FileForm("ansible", "an inventory of Ansible", r"(?m)^[^#\n]*\bansible_(?:host|user|port|connection)="),
    FileForm("ansible", "an inventory of Ansible", _HOSTS + r"\[[\w.-]+(?::\w+)?\][ \t]*(?:\n|\Z)", suffixes=_PLAIN),
    FileForm("hosts", "a host list", line=rf"{_HOST}{_SLOTS}+(?:\s*#.*)?"),
    FileForm("hosts", "a host list", line=rf"{_HOST}{_SLOTS}*(?:\s*#.*)?", suffixes=(*_PLAIN, ".hostfile")),
)


def recognise(path: Path) -> FileForm | None:
    """Return the form of another tool that the file at *path* has.

    Return None for other files, among them YAML, and for a file that cannot be read. Only the first
    HEAD_BYTES are read, and whole lines of these.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(HEAD_BYTES + 1)
    except OSError:
        return None
    head = content[:HEAD_BYTES].decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if len(content) > HEAD_BYTES:
        head = head[: head.rfind("\n") + 1] or head
    suffix, root = path.suffix.lower(), _root(head)
    return next((form for form in FORMS if form.fits(suffix, root, head)), None)


def _root(head: str) -> str:
    """Return the name of the root element of XML, "?" if it is not in *head*, "" if this is no XML."""
    place, first = 0, re.compile(r"\s*<(\?|!--|!|(?:\w+:)?([A-Za-z][\w.-]*)|\Z)")
    ends = {"?": "?>", "!--": "-->", "!": ">"}
    while (found := first.match(head, place)) is not None:
        if (end := ends.get(found[1])) is None:
            return found[2] or "?"
        place = head.find(end, found.end()) + len(end)
        if place < found.end():
            return "?"
    return "?" if place else ""


def refuse_foreign(path: Path, wanted: str) -> None:
    """Raise UsageError if the file at *path*, which should be *wanted*, is one of another tool."""
    form = recognise(path)
    if form is None or form.name == "node-link":  # JSON is YAML, too
        return
    road = form.road or f"is no {wanted}: it is read as a topology, and `simcluster import FILE` writes it as YAML"
    raise UsageError("file", f"{form.title}, which {road.replace('FILE', path.name)}", "", str(path))
