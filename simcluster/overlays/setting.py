"""The setting of an overlay in an experiment: a name (`ring`), or a mapping (`{kind:
random_regular, degree: 3}`).

    overlay: one_peer_exponential
    overlay: {kind: torus, rows: 3}
    overlay: {kind: erdos_renyi, probability: 0.3, seed: 1, every: 10}     # redrawn every 10 rounds
    overlay: {kind: edges, edges: [[0, 1], [1, 2], [pi4, pi5]], directed: false}
    overlay: {kind: file, path: friends.graphml}                           # or node-link JSON
    overlay: {kind: cycle, of: [ring, {kind: edges, edges: [[0, 2]]}]}     # in turn

Random graphs depend only on the run's seed, or on the overlay's if it has one, so every rank draws
the same graphs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import networkx
import pydantic

from simcluster.documents.graph_names import node_name
from simcluster.errors import UsageError
from simcluster.overlays.overlay import Overlay
from simcluster.overlays.shapes import DRAWN, PLAIN, Graph, Misfit, hops, one_peer_exponential
from simcluster.rng import numpy_stream
from simcluster.spelling import nearest

OF_DRAWN = ("seed", "every")
OTHERS = ("cycle", "file", "one_peer_exponential")
KINDS = tuple(sorted((*PLAIN, *DRAWN, *OTHERS)))
DRAWS = 100
"""Limit on the attempts to draw a random graph that is connected."""

MOST_BYTES = 64 * 2**20
INVALID = (ValueError, TypeError, KeyError, SyntaxError, StopIteration, RecursionError, networkx.NetworkXError)
"""Errors that json and networkx raise for a file that does not hold a graph."""

Setting = str | Mapping[str, Any]


def overlay_of(setting: Setting | Graph, size: int, seed: int) -> Overlay:
    """Return the overlay of *size* ranks that *setting*, or a networkx graph, describes.

    *seed* is the seed of the run. Raise UsageError if *setting* is invalid or does not fit this
    size.
    """
    try:
        if isinstance(setting, networkx.Graph):
            setting = from_graph(setting)
        return _known(json.dumps(resolved(setting)), size, seed)
    except Misfit as misfit:
        shown = setting if isinstance(setting, str) else dict(setting)
        raise UsageError("overlay", repr(shown), str(misfit)) from None


def resolved(setting: Setting, folder: Path | None = None, names: Sequence[str] = ()) -> Setting:
    """Return *setting* with files replaced by edges and workers' names by ranks.

    The result does not depend on the folder or the names: relative paths in *setting* are relative
    to *folder* (by default the working directory), and *names* has the workers' names by rank.
    Raise Misfit if the setting is invalid.
    """
    if isinstance(setting, str):
        if setting in ("cycle", "file"):
            raise Misfit(f"a mapping {{kind: {setting}, {'of' if setting == 'cycle' else 'path'}: ...}}")
        _arguments({"kind": setting})
        return setting
    if setting.get("kind") == "file":
        _refuse_unknown(setting, ("path",))
        if not isinstance(setting.get("path"), str):
            raise Misfit("path: a file of GraphML or node-link JSON")
        setting = _from_file((folder or Path()) / setting["path"])
    if setting.get("kind") == "cycle":
        _refuse_unknown(setting, ("of",))
        of = setting.get("of")
        if not isinstance(of, list) or not of or not all(isinstance(each, (str, dict)) for each in of):
            raise Misfit("of: a list of overlays")
        return {"kind": "cycle", "of": [resolved(each, folder, names) for each in of]}
    if setting.get("kind") == "edges" and isinstance(setting.get("edges"), list):
        setting = {**setting, "edges": _ranks_of(setting["edges"], names)}
    _arguments(setting)
    return dict(setting)


@lru_cache(maxsize=16)
def _known(setting_json: str, size: int, seed: int) -> Overlay:
    """Return the overlay of the setting that *setting_json* encodes.

    It is cached, since a simulator has hundreds of ranks in one process.
    """
    setting = json.loads(setting_json)
    if size == 1:
        return Overlay(1, lambda key: networkx.empty_graph(1))
    if isinstance(setting, str) or setting["kind"] != "cycle":
        graph_of, window, repeats, key_of = _graphs(setting, size, seed)
        return Overlay(size, graph_of, window=window, repeats=repeats, key_of=key_of)
    parts = [_graphs(each, size, seed) for each in setting["of"]]

    def in_turn(round_: int) -> Graph:
        """Return the graph of *round_*: the parts alternate, and each continues with its next
        round.
        """
        graph_of, _, _, key_of = parts[round_ % len(parts)]
        return graph_of(key_of(round_ // len(parts)))

    window = len(parts) * max(window for _, window, _, _ in parts)
    repeats = all(repeats for _, _, repeats, _ in parts)
    return Overlay(size, in_turn, window=window, repeats=repeats, key_of=lambda round_: round_)


_Graphs = tuple[Callable[[int], Graph], int, bool, Callable[[int], int]]
"""(key -> graph, number of rounds in a window, whether windows repeat, round -> key)."""


def _graphs(setting: Setting, size: int, seed: int) -> _Graphs:
    given = {"kind": setting} if isinstance(setting, str) else setting
    kind = given["kind"]
    if kind == "cycle":
        raise Misfit("no cycle within a cycle")
    arguments = _arguments(given)
    if kind == "one_peer_exponential":
        window = hops(size)
        return partial(one_peer_exponential, size), window, True, lambda round_: round_ % window
    if kind in PLAIN:
        return lambda key: PLAIN[kind](size, **arguments), 1, True, lambda round_: 0
    own_seed, every = arguments.pop("seed"), arguments.pop("every")
    draw = partial(_draw, kind, arguments, size, seed if own_seed is None else own_seed)
    draw(0)  # raises Misfit now if no graph has these settings
    if every is None:
        return draw, 1, True, lambda round_: 0
    return draw, 1, False, lambda round_: round_ // every


def _draw(kind: str, arguments: Mapping[str, Any], size: int, seed: int, number: int) -> Graph:
    """Return random graph *number*: the first of at most DRAWS draws that is connected, otherwise
    the last draw.
    """
    for attempt in range(DRAWS):
        rng = numpy_stream(seed, "overlay", kind, str(number), str(attempt))
        graph: Graph = DRAWN[kind](size, rng, **arguments)
        if networkx.is_connected(graph):
            break
    return graph


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in *given*, without the kind, and with defaults filled in.

    Raise Misfit with all problems.
    """
    kind = given.get("kind")
    if kind not in KINDS:
        raise Misfit(f"a kind of overlay: {nearest(str(kind), KINDS)}" if kind else f"a kind: {', '.join(KINDS)}")
    types, defaults = _settings(str(kind))
    _refuse_unknown(given, tuple(types))
    arguments, wrong = dict(defaults), []
    for name, type_ in types.items():
        if name in given:
            try:
                adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(type_)
                arguments[name] = adapter.validate_json(json.dumps(given[name]), strict=True)
            except pydantic.ValidationError as error:
                wrong.append(f"{name}: {error.errors()[0]['msg'].removeprefix('Input should be ')}")
        elif name not in defaults:
            wrong.append(f"{name}: a value, since it has no default")
    if wrong:
        raise Misfit("; ".join(wrong))
    return arguments


def _settings(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (setting -> type, setting -> default) for a *kind* of overlay."""
    if kind in OTHERS:
        return {}, {}
    make = PLAIN.get(kind) or DRAWN[kind]
    hints = get_type_hints(make, include_extras=True)
    own = {n: p for n, p in inspect.signature(make).parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    types: dict[str, Any] = {name: hints[name] for name in own}
    defaults = {name: p.default for name, p in own.items() if p.default is not p.empty}
    if kind in DRAWN:
        types |= {"seed": pydantic.NonNegativeInt | None, "every": pydantic.PositiveInt | None}
        defaults |= dict.fromkeys(OF_DRAWN)
    return types, defaults


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str]) -> None:
    wrong = [f"{key!r}: {nearest(str(key), ['kind', *known])}" for key in given if key not in ("kind", *known)]
    if wrong:
        raise Misfit("known keys: " + "; ".join(wrong))


def _from_file(path: Path) -> dict[str, Any]:
    """Return the setting equivalent to the graph in the file at *path*.

    Raise Misfit if the file cannot be read or does not hold a graph.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Misfit(f"a file of at most {MOST_BYTES // 2**20} MiB at {path}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misfit(f"a file that can be read: {error}") from None
    if path.suffix not in (".json", ".graphml", ".xml"):
        raise Misfit(f"GraphML (.graphml) or node-link JSON (.json), not {path.suffix or 'a file without a suffix'}")
    kind = "node-link JSON" if path.suffix == ".json" else "GraphML"
    if kind == "GraphML" and ("<!DOCTYPE" in text or "<!ENTITY" in text):  # entities can expand into a huge file
        raise Misfit(f"plain GraphML at {path}, without a DOCTYPE or an entity")
    try:
        if kind == "GraphML":
            return from_graph(networkx.parse_graphml(text))
        data = json.loads(text)
        return from_graph(networkx.node_link_graph(data, edges="edges" if "edges" in data else "links"))
    except INVALID as error:
        raise Misfit(f"{kind} at {path} ({type(error).__name__}: {error})") from None


def from_graph(graph: Graph) -> dict[str, Any]:
    """Return the setting {kind: edges, ...} equivalent to a networkx *graph*.

    The nodes of the graph are ranks, or are named as in a topology.
    """
    pairs = [[end if _is_rank(end) else node_name(end) for end in pair] for pair in graph.edges()]
    return {"kind": "edges", "edges": pairs, "directed": graph.is_directed()}


def _ranks_of(edges: Sequence[Any], names: Sequence[str]) -> list[list[int]]:
    """Return *edges* as pairs of ranks.

    The ends of edges are ranks or workers' *names*, which are in rank order. Raise Misfit for an
    unknown name.
    """
    numbers = {name: rank for rank, name in enumerate(names)}
    pairs = []
    for edge in edges:
        if not isinstance(edge, (list, tuple)) or len(edge) != 2:
            raise Misfit(f"edges with two ends, not {edge!r}")
        pairs.append([_rank(end, numbers) for end in edge])
    return pairs


def _rank(label: Any, numbers: Mapping[str, int]) -> int:
    if isinstance(label, str) and label in numbers:
        return numbers[label]
    if _is_rank(label):
        return int(label)
    if isinstance(label, str) and label.isdecimal():
        return int(label)
    raise Misfit(f"ranks or workers as ends of edges, not {label!r}: {nearest(str(label), numbers)}")


def _is_rank(node: Any) -> bool:
    return isinstance(node, int) and not isinstance(node, bool)
