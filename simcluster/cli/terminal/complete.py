"""Completion of `--set` and of the options that name something. Nothing heavy is imported: torch is not.

The settings of algorithms and workloads come from the JSON schemas, which `make schemas` keeps up to date.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

from simcluster.documents.shipped import find, schema_text
from simcluster.errors import UsageError

_BLOCKS = ("topology", "algorithm", "workload")


@contextmanager
def words_of_bash(environ: MutableMapping[str, str]) -> Iterator[None]:
    """If bash asks for completions, join the words that it has split at `=` in *environ*, where the shell function of
    `--install-completion` puts them. Bash replaces what follows the last `=`, so print the candidates without the rest.
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
    """Return *words*, joined at each `=`, and whether the last one was; an empty word is one after a space."""
    joined, is_split = [words[0]], False
    for before, word in pairwise(words):
        is_split = bool(word) and "=" in (word, before)
        joined = [*joined[:-1], joined[-1] + word] if is_split else [*joined, word]
    return joined, is_split


def set_keys(ctx: Any, incomplete: str) -> list[str]:
    """Complete `--set`: a key of the experiment that is named before it, with `=` at the end, or a value."""
    key, equals, value = incomplete.partition("=")
    schema = json.loads(schema_text("experiment"))
    # Of a line that ends in --set, options alone are parsed: the experiment is still among the other words.
    first = {"experiment": ctx.args[0]} if ctx.args else {}
    document = _document(first | {name: value for name, value in ctx.params.items() if value is not None})
    if equals:
        return [f"{key}={word}" for word in _values(schema, document, key) if word.startswith(value)]
    found = [key for key in _keys(schema, document) if key.startswith(incomplete)]
    # After the only candidate a shell writes a space, which would end the word: so there are two.
    return [*found, f"{found[0]}..."] if len(found) == 1 else found


def operations(incomplete: str) -> list[str]:
    """Complete `--op` of `bench collective`."""
    return [name for name in _schedules() if name.startswith(incomplete)]


def schedules(ctx: Any, incomplete: str) -> list[str]:
    """Complete `--schedule`: those of the operation that is named before it, or of any."""
    found = _schedules()
    of_one = found.get(ctx.params.get("op"))
    names = of_one if of_one is not None else sorted({name for those in found.values() for name in those})
    return [name for name in names if name.startswith(incomplete)]


def one_of(*names: str) -> Callable[[str], list[str]]:
    """Return the completion of an option that takes one of *names*."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def _document(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment of the command line, with --algorithm and --topology; {} if there is none yet."""
    from simcluster.documents.yaml import load

    document: dict[str, Any] = {}
    try:
        if params.get("experiment"):
            path = find("experiments", params["experiment"])
            found = load(path).data
            document = found if isinstance(found, dict) else {}
            document["folder"] = path.parent
    except UsageError:
        pass
    named = {key: params[key] for key in ("algorithm", "topology") if params.get(key)}
    document |= named
    if "topology" in named:
        document["folder"] = Path()
    return document


def _keys(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys, each with its `=`; a key with more below it also with a dot."""
    for key, part in schema["properties"].items():
        if key in _BLOCKS:
            yield f"{key}="
        else:
            below = _mapping(part, schema["definitions"]).get("properties", {})
            yield from (f"{key}.{name}=" for name in below) if below else [f"{key}="]
    for block in ("algorithm", "workload"):
        yield from (f"{block}.{name}=" for name in _settings(schema, document, block) if name != "name")
    yield from (f"topology.{key}" for key in _topology_keys(schema, document))


def _topology_keys(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    data, definitions = _topology(document), schema["definitions"]
    if "generator" in data:
        generated = definitions.get(f"generator_{data['generator']}", {})
        yield from (f"{key}=" for key in generated.get("properties", {}))
        return
    whole = definitions["TopologyBlock"]["properties"]
    yield from (f"{key}=" for key in whole if key not in ("nodes", "links"))
    nodes = data.get("nodes") or {}
    keys = definitions["NodeBlock"]["properties"]
    for name, node in [("*", {}), *(nodes.items() if isinstance(nodes, dict) else ())]:
        if not isinstance(node, dict) or node.get("kind") not in ("switch", "host"):
            yield from (f"nodes.{name}.{key}=" for key in keys)
    links = data.get("links")
    for link in links if isinstance(links, list) else ():
        ends = link.get("between") if isinstance(link, dict) else None
        if isinstance(ends, list) and len(ends) == 2:
            yield from (f"links.{ends[0]}-{ends[1]}.{key}=" for key in definitions["LinkBlock"]["properties"])


def _topology(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology of *document*, whose relative paths begin at its folder."""
    from simcluster.documents.yaml import load

    named = document.get("topology")
    if isinstance(named, str):
        beside = document.get("folder", Path()) / named
        try:
            named = load(beside if beside.is_file() else find("topologies", named)).data
        except UsageError:
            return {}
    return named if isinstance(named, dict) else {}


def _settings(schema: Mapping[str, Any], document: Mapping[str, Any], block: str) -> dict[str, Any]:
    """Return the schemas of the settings of the algorithm or workload that *document* names."""
    given = document.get(block)
    name = given.get("name") if isinstance(given, dict) else given
    cases = schema["definitions"][block.capitalize()]["else"]["allOf"]
    for case in cases:
        if case["if"]["properties"]["name"]["const"] == name:
            return dict(case["then"]["properties"])
    return {}


def _values(schema: Mapping[str, Any], document: Mapping[str, Any], key: str) -> list[str]:
    """Return the words that *key* can have, if there are few."""
    block, _, name = key.partition(".")
    definitions = schema["definitions"]
    if key in ("algorithm", "workload", "algorithm.name", "workload.name"):
        return list(definitions[block.capitalize()]["else"]["properties"]["name"]["enum"])
    if key == "topology":
        from simcluster.catalogue import names

        return names("topologies")
    if block in ("algorithm", "workload"):
        return _words(_settings(schema, document, block).get(name, {}))
    if block == "topology":
        part, *_, last = name.split(".") if "." in name else ("", name)
        kind = {"nodes": "NodeBlock", "links": "LinkBlock"}.get(part, "TopologyBlock")
        return _words(definitions[kind]["properties"].get(last, {}))
    found = schema["properties"].get(block, {})
    return _words(_mapping(found, definitions).get("properties", {}).get(name, {}) if name else found)


def _words(schema: Mapping[str, Any]) -> list[str]:
    found = [str(word) if not isinstance(word, bool) else str(word).lower() for word in schema.get("enum", ())]
    found += ["true", "false"] if schema.get("type") == "boolean" else []
    found += [str(schema["const"])] if "const" in schema else []
    return found + [word for part in schema.get("anyOf", ()) for word in _words(part)]


def _mapping(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *schema*, or the mapping that it allows besides nothing."""
    parts = [schema, *schema.get("anyOf", ())]
    whole = [definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else part for part in parts]
    return next((part for part in whole if "properties" in part), {})


def _schedules() -> dict[str, list[str]]:
    """Operation -> its schedules, as the source of that table writes them: it imports torch."""
    source = Path(__file__).parents[2] / "collectives" / "schedules.py"
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.Dict):
            table = statement.value
            return {
                str(key.value): [str(name.value) for name in below.keys if isinstance(name, ast.Constant)]
                for key, below in zip(table.keys, table.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(below, ast.Dict)
            }
    raise AssertionError("no table of schedules")
