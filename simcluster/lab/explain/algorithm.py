"""Explain an algorithm in sentences: its purpose, paper, phases, messages and settings.

The sentences come from the algorithm's source. Messages are counted in two short simulated runs
without numerics: the difference between the longer and the shorter run is the traffic of the
additional steps.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simcluster.algorithms import ALGORITHMS
from simcluster.documents.user_code import load_function, spelling
from simcluster.errors import UsageError
from simcluster.experiment.run import run
from simcluster.results import Run
from simcluster.runs import words
from simcluster.spelling import nearest

MOST_NODES = 32
STEPS = 4
MOST_STEPS = 200
"""Default and limit of the shorter run's steps.

Settings that count steps can require more than the default.
"""

COUNTED = ("interval", "pull_interval", "warmup")
"""Settings that count steps."""

MOST_WORDS = 10_000
"""Limit on the characters read from a docstring."""

NO_WORDS = "it has no docstring, so what follows is only counted, in short runs without numerics."
"""The sentence for an algorithm without a docstring on its function or its file."""

_PHASE = re.compile(r"^ *# (Phases? [\d, and]+), ([^:\n]+): ((?:.*)(?:\n *# (?!Phase).*)*)", re.MULTILINE)
_IN_DOCSTRING = re.compile(r'"""(Phases? [\d, and]+)(): ((?:[^"]|"(?!""))*)"""')
_MENTION = r"\*{name}\*[^.]*?: "


@dataclass(frozen=True)
class Phase:
    """A phase, as described by a comment or a docstring of the source; *name* may be empty."""

    number: str
    name: str
    text: str


@dataclass(frozen=True)
class DocumentedSetting:
    """A setting with its *default* and what the docstring says about it."""

    name: str
    default: Any
    text: str


@dataclass(frozen=True)
class MessageTraffic:
    """The messages of one kind that all nodes together send.

    *what* is the common first words of their tags; *way* says which ranks send to which.
    """

    what: str
    way: str
    messages_per_step: float
    bytes_per_step: float


@dataclass(frozen=True)
class ExplainedAlgorithm:
    """The explanation of an algorithm on *nodes* nodes.

    *model_bytes* is the size of the model in the runs whose messages are counted.
    """

    name: str
    summary: str
    about: str
    paper: str
    phases: tuple[Phase, ...]
    settings: tuple[DocumentedSetting, ...]
    nodes: int
    model_bytes: int
    traffic: tuple[MessageTraffic, ...]

    def sentences(self) -> list[str]:
        """Return the explanation, one paragraph per entry."""
        found = [f"{self.name}: {self.about or self.summary or NO_WORDS}"]
        if self.about and self.summary:
            found.append(self.summary)
        named = [f"{phase.number}, {phase.name}" if phase.name else phase.number for phase in self.phases]
        found += [f"{name}: {phase.text}" for name, phase in zip(named, self.phases, strict=True)]
        found.append(self._wire())
        found += [
            f"{one.what}: {one.way}; {one.messages_per_step:.4g} messages, {self._in_models(one.bytes_per_step)} a step"
            for one in self.traffic
        ]
        found += [f"{one.name} = {_shown(one.default)}{f': {one.text}' if one.text else ''}" for one in self.settings]
        return [*found, f"Source: {self.paper}"] if self.paper else found

    def _wire(self) -> str:
        """Describe the total traffic of a step."""
        if not self.traffic:
            return f"With {words.plural(self.nodes, 'node')}, nothing is sent."
        total = sum(one.bytes_per_step for one in self.traffic)
        each = self._in_models(total / self.nodes)
        return (
            f"With {self.nodes} nodes, all together send {self._in_models(total)} per step, {each} each, "
            "where M is the size of the model:"
        )

    def _in_models(self, size: float) -> str:
        return f"{size / self.model_bytes:.3g} M"

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-compatible values."""
        return {"kind": "algorithm", **asdict(self), "sentences": self.sentences()}


def explain_algorithm(name: str, nodes: int = 4, settings: Mapping[str, Any] | None = None) -> ExplainedAlgorithm:
    """Explain the algorithm *name*, or "file.py:function", on *nodes* nodes with *settings*.

    Raise UsageError for an unknown algorithm, an invalid number of nodes or invalid settings.
    """
    if not 0 < nodes <= MOST_NODES:
        raise UsageError("--nodes", str(nodes), f"a number from 1 to {MOST_NODES}")
    function = _function(name)
    module = sys.modules[function.__module__] if name in ALGORITHMS else None
    source = inspect.getsource(function if module is None else module)
    text = _paragraphs(function.__globals__.get("__doc__") if module is None else inspect.getdoc(module))
    own = _paragraphs(inspect.getdoc(function))
    parameters = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    given = dict(settings or {})
    found = [
        DocumentedSetting(name, given.get(name, default), _about(name, defaults, " ".join(own)))
        for name, default in defaults.items()
    ]
    block = {"name" if name in ALGORITHMS else "path": name, **given}
    model_bytes, traffic = _traffic(block, nodes, _steps_of(found))
    return ExplainedAlgorithm(
        name=name,
        summary=_plain(own[0]) + "." if own else "",
        about=text[0] if text else "",
        paper="" if module is None else " ".join(text[1:]),
        phases=tuple(_phases(source)),
        settings=tuple(found),
        nodes=nodes,
        model_bytes=model_bytes,
        traffic=tuple(traffic),
    )


def _function(name: str) -> Callable[..., Any]:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        expected = f"the folder of a run, {spelling(name)}, or an algorithm: {nearest(name, ALGORITHMS)}"
        raise UsageError("ALGORITHM|RUN", repr(name), expected)
    return load_function(name, Path.cwd(), "ALGORITHM")[0]


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (text or "")[:MOST_WORDS].split("\n\n") if part.strip()]


def _phases(source: str) -> list[Phase]:
    """Return the phases in *source*, in order; the first description of each phase counts."""
    found = [
        Phase(number, name, " ".join(re.sub(r"\n *#", " ", text).split()))
        for number, name, text in (*_PHASE.findall(source), *_IN_DOCSTRING.findall(source))
    ]
    first = {phase.number: phase for phase in reversed(found)}.values()
    return sorted(first, key=lambda phase: re.findall(r"\d+", phase.number))


def _about(name: str, names: Iterable[str], text: str) -> str:
    """Return what *text*, a docstring, says about the setting *name*.

    This is the text after `*name*:`, up to the next of *names*. If there is none, return the
    sentence that mentions the setting.
    """
    begin = re.search(_MENTION.format(name=name), text)
    if begin is None:
        mentions = (part for part in re.split(r"(?<=\.) ", text) if f"*{name}*" in part)
        return _plain(next((part for part in mentions if not re.match(r"\*\w+\*[^.]*?: ", part)), ""))
    others = [re.search(_MENTION.format(name=other), text[begin.end() :]) for other in names if other != name]
    end = min((other.start() for other in others if other is not None), default=None)
    return _plain(text[begin.end() :][:end])


def _plain(text: str) -> str:
    return re.sub(r"\*(\w+)\*", r"\1", text).strip(" .")


def _shown(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    return "none" if default is None else str(default)


def _steps_of(settings: Sequence[DocumentedSetting]) -> int:
    """Return enough steps for all settings that count steps to take effect, at most MOST_STEPS."""
    counts = [one.default for one in settings if one.name in COUNTED and type(one.default) is int]
    return min(MOST_STEPS, max([STEPS, *counts]))


def _traffic(algorithm: Mapping[str, Any], nodes: int, steps: int) -> tuple[int, list[MessageTraffic]]:
    """Return (bytes of the model, one step's traffic by kind of message)."""
    shape: dict[str, Any] = {"layers": nodes, "width": 8 * nodes, "heads": nodes, "context": 8}
    experts = {"experts": 2 * nodes} if algorithm.get("name") == "expert_parallel" else {}
    model = {"name": "gpt", **shape, **experts, "batch_size": 4}
    topology = {"generator": "star", "workers": nodes}
    with TemporaryDirectory(prefix="simcluster-explain-") as home:
        short, long = (
            run(
                topology=topology, algorithm=dict(algorithm), workload=model, stop={"steps": count * steps},
                numerics="none", report=False, out=Path(home) / str(count),
            )
            for count in (1, 2)
        )  # fmt: skip
        sent = _sent(long)
        sent.subtract(_sent(short))
        pairs: dict[str, set[tuple[int, int]]] = {}
        messages, sizes = Counter[str](), Counter[str]()
        for (what, source, target, size), count in sent.items():
            if count > 0:
                pairs.setdefault(what, set()).add((source, target))
            messages[what] += count
            sizes[what] += count * size
    found = [
        MessageTraffic(what, _way(pairs[what], nodes), messages[what] / steps, sizes[what] / steps)
        for what in sorted(pairs, key=lambda what: -sizes[what])
        if messages[what] > 0
    ]
    from simcluster.workloads.models.gpt import gpt

    return sum(tensor.nbytes for tensor in gpt(**shape).sketch.parameters), found


def _sent(done: Run) -> Counter[tuple[str, int, int, int]]:
    """Return (kind, source, target, bytes) -> the number of such messages in a run."""
    return Counter(
        (_kind(span.tag), rank, span.peer, span.size_bytes) for rank, span in done.spans if span.kind == "send"
    )


def _kind(tag: str) -> str:
    """Return the words of a tag before its numbers: "gradients" for "gradients/3/scatter0"."""
    return re.split(r"/|\d", tag)[0].strip() or tag


def _way(pairs: set[tuple[int, int]], nodes: int) -> str:
    """Describe which ranks send to which other ranks."""
    everyone = {(a, b) for a in range(nodes) for b in range(nodes) if a != b}
    ring = {(rank, (rank + 1) % nodes) for rank in range(nodes)}
    gathered = {(rank, 0) for rank in range(1, nodes)}
    line = {(rank, rank + 1) for rank in range(nodes - 1)}
    known = {
        "between the two nodes": everyone if nodes == 2 else set(),
        "each node to the next one, around a ring": ring,
        "each node to every other one": everyone,
        "each node to rank 0": gathered,
        "rank 0 to every other node": _reversed(gathered),
        "rank 0 to every other node, and back": gathered | _reversed(gathered),
        "each node to the next one": line,
        "each node to the one before it": _reversed(line),
        "each node to both neighbours on a ring": ring | _reversed(ring),
    }
    exact = next((text for text, those in known.items() if those and those == pairs), None)
    return exact if exact is not None else f"between {len(pairs)} of {len(everyone)} pairs of nodes"


def _reversed(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(b, a) for a, b in pairs}
