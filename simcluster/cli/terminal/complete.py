"""Complete `--set`, and options that name something, in a shell.

Nothing that takes long is imported, such as torch: the settings of algorithms and workloads come
from the JSON schemas, which `make schemas` keeps up to date.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

from simcluster.documents.shipped import Kind, find, schema_text, shipped_names
from simcluster.errors import UsageError

Schema = Mapping[str, Any]
"""A JSON schema."""


@contextmanager
def words_of_bash(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Within the context, undo how bash splits words at `=` when it asks for completions.

    Join the words in *environ*, where the shell function of `--install-completion` puts them. Bash
    replaces only the text after the last `=`, so print only this part of each candidate.
    """
    if environ.get("_SIMCLUSTER_COMPLETE") != "complete_bash":
        yield
        return
    joined, is_split = _joined(environ.get("COMP_WORDS", "").split("\n")[: int(environ.get("COMP_CWORD", "0")) + 1])
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    before, equals, _ = joined[-1].rpartition("=") if is_split else ("", "", "")
    if before.startswith("--"):  # --set=KEY=VALUE: a candidate begins with the key
        _, _, before = before.partition("=")
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            yield
    finally:
        print(*(line.removeprefix(before + equals) for line in said.getvalue().splitlines()), sep="\n")


def _joined(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return (*words* joined at each `=`, whether the last word was joined).

    An empty word follows a space, so it is not joined.
    """
    joined, is_split = [words[0]], False
    for before, word in pairwise(words):
        is_split = bool(word) and "=" in (word, before)
        joined = [*joined[:-1], joined[-1] + word] if is_split else [*joined, word]
    return joined, is_split


def set_keys(ctx: Any, incomplete: str) -> list[str]:
    """Return the completions of `--set`: keys of the experiment with a final `=`, or values."""
    key, equals, value = incomplete.partition("=")
    # If the line ends in --set, click has parsed only options. The experiment is still in the args.
    first = {"experiment": ctx.args[0]} if ctx.args else {}
    document = _document(first | {name: value for name, value in ctx.params.items() if value is not None})
    known = dict(_keys(json.loads(schema_text("experiment")), document))
    if equals:
        return [f"{key}={word}" for word in _words(known.get(key, {})) if word.startswith(value)]
    found = [f"{key}=" for key in known if key.startswith(incomplete)]
    # A shell writes a space after a single candidate, which would end the word, so return two.
    return [*found, f"{found[0]}..."] if len(found) == 1 else found


def one_of(*names: str) -> Callable[[], list[str]]:
    """Return a completion for an option that takes one of *names*; typer filters the names."""
    return lambda: list(names)


def _document(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment that the command line names, changed by --algorithm and --topology.

    Return {} if the line names none yet.
    """
    document = mapping_in("experiments", params["experiment"]) if params.get("experiment") else {}
    named = {key: params[key] for key in ("algorithm", "topology") if params.get(key)}
    return document | named | ({"folder": Path()} if "topology" in named else {})


def mapping_in(kind: Kind, source: str | Path) -> dict[str, Any]:
    """Return the mapping in the file *source*, a path or a shipped name, with its "folder".

    Return {} if there is no such file, or if it is invalid.
    """
    from simcluster.documents.yaml import load

    try:
        path = find(kind, source)
        data = load(path).data
    except UsageError:
        return {}
    return {**data, "folder": path.parent} if isinstance(data, dict) else {}


def _keys(schema: Schema, document: Mapping[str, Any]) -> Iterator[tuple[str, Schema]]:
    """Yield (dotted key, schema of its value) for each key that can be set in *document*."""
    definitions = schema["definitions"]
    for key, part in schema["properties"].items():
        below = _mapping(part, definitions).get("properties", {})
        if key == "topology":
            yield key, {"enum": shipped_names("topologies")}
            below = dict(_topology_keys(definitions, _topology(document)))
        elif key in ("algorithm", "workload"):
            named = definitions[key.capitalize()]["else"]
            yield key, named["properties"]["name"]
            below = _settings(named["allOf"], document.get(key)) | {"name": named["properties"]["name"]}
        elif not below:
            yield key, part
        yield from ((f"{key}.{name}", one) for name, one in below.items())


def _topology_keys(definitions: Schema, data: Mapping[str, Any]) -> Iterator[tuple[str, Schema]]:
    if "generator" in data:
        yield from definitions.get(f"generator_{data['generator']}", {}).get("properties", {}).items()
        return
    whole = definitions["TopologyBlock"]["properties"]
    yield from ((key, one) for key, one in whole.items() if key not in ("nodes", "links"))
    nodes = data.get("nodes")
    links = data.get("links")
    places = [("NodeBlock", "nodes.*"), ("LinkBlock", "links.*")]
    for name, node in nodes.items() if isinstance(nodes, dict) else ():
        if not isinstance(node, dict) or node.get("kind") not in ("switch", "host"):
            places.append(("NodeBlock", f"nodes.{name}"))
    for link in links if isinstance(links, list) else ():
        ends = link.get("between") if isinstance(link, dict) else None
        if isinstance(ends, list) and len(ends) == 2:
            places.append(("LinkBlock", f"links.{ends[0]}-{ends[1]}"))
    for kind, place in places:
        yield from ((f"{place}.{key}", one) for key, one in definitions[kind]["properties"].items())


def _topology(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of the topology that *document* names or contains; {} if unknown."""
    named = document.get("topology")
    if isinstance(named, str):
        beside = document.get("folder", Path()) / named
        return mapping_in("topologies", beside if beside.is_file() else named)
    return named if isinstance(named, dict) else {}


def _settings(cases: Sequence[Schema], given: Any) -> dict[str, Any]:
    """Return setting -> schema for the algorithm or workload *given*, according to *cases*."""
    name = given.get("name") if isinstance(given, dict) else given
    found = (case["then"]["properties"] for case in cases if case["if"]["properties"]["name"]["const"] == name)
    return dict(next(found, {}))


def _words(schema: Schema) -> list[str]:
    found = [str(word) if not isinstance(word, bool) else str(word).lower() for word in schema.get("enum", ())]
    found += ["true", "false"] if schema.get("type") == "boolean" else []
    found += [str(schema["const"])] if "const" in schema else []
    return found + [word for part in schema.get("anyOf", ()) for word in _words(part)]


def _mapping(schema: Schema, definitions: Schema) -> Schema:
    """Return the schema of the mapping that *schema* allows, possibly as one of several types."""
    parts = [schema, *schema.get("anyOf", ())]
    whole = [definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else part for part in parts]
    return next((part for part in whole if "properties" in part), {})
