"""Simulate one collective operation on a topology, without values, for its time and its bytes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.backend import simulator
from simcluster.collectives import exchange, operations, subgroup
from simcluster.collectives.exchange import skipped
from simcluster.collectives.schedules import find
from simcluster.documents.limits import MOST_BYTES
from simcluster.errors import Problem, raise_all
from simcluster.forwarding import Forwarding
from simcluster.overlays.nearness import chain_of, sites_of, weights_of
from simcluster.payload import Message, Sendable, as_payload, body_bytes
from simcluster.rounds import NO_RANK, Rounds
from simcluster.shortcuts import Shortcuts
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.transport import Transport

ORDERS = ("ranks", "near-first", "far-first")


class ByteCounter(Forwarding):
    """Wrap *node* and count the tensor bytes that it sends, without headers, in *payload_B*."""

    payload_B = 0

    def __init__(self, node: Transport) -> None:
        super().__init__(node)
        self.fast = Shortcuts(self._exchange, rounds_ahead=self._rounds_ahead)

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        self.payload_B += body_bytes(as_payload(content))
        await self._node.send(to, tag, content)

    async def _exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        self.payload_B += body_bytes(as_payload(content))
        return await exchange(self._node, to, source, tag, content)

    async def _rounds_ahead(self, rounds: Rounds) -> int:
        """Skip rounds as the wrapped transport does, and count the bytes of the skipped rounds."""
        over = await skipped(self._node, rounds)
        sent = [number for number in range(over) if rounds.to(number, self.rank) != NO_RANK]
        elements = sum(int(rounds.elements(number, self.rank)) * rounds.tensors(number) for number in sent)
        self.payload_B += elements * rounds.vector.element_size()
        return over


def bench_collective(
    op: str, schedule: str, topology: Topology, size_bytes: int, given: Mapping[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Simulate *op* by *schedule* among all workers of *topology*, which all enter at time 0.

    *size_bytes* is the M in the formulas: the size of the vector to broadcast or reduce, of all
    ranks' data to gather or scatter, or of one rank's data for all ranks in an all-to-all. Return
    elapsed_s, messages, bytes_sent (of tensors, by all ranks together) and header_bytes, along with
    the request.
    """
    op, schedule, run = find(op, schedule)
    problems = []
    if not 0 <= size_bytes <= MOST_BYTES:
        limit = "at least 0" if size_bytes < 0 else f"at most {MOST_BYTES}"
        problems.append(Problem("--bytes", str(size_bytes), limit))
    order, root, settings = _settings(run, topology, 0 if problems else size_bytes, given, problems)
    raise_all(problems)
    work = _work(op, size_bytes, root, {"schedule": schedule, **settings})

    async def body(node: Any) -> tuple[float, int, int, int]:
        counted = ByteCounter(node)
        await work(subgroup(counted, order))
        record = node.recorder.record
        return asyncio.get_running_loop().time(), record.messages_sent, counted.payload_B, record.bytes_sent

    ends = simulator().run_bodies([body] * len(topology.workers), topology, seed)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    times_s, messages, payload_B, sent_B = zip(*ends, strict=True)
    return {
        "op": op,
        "schedule": schedule,
        "topology": topology.name,
        "nodes": len(ends),
        "bytes": size_bytes,
        "order": [topology.workers[rank] for rank in order],
        **{name: value for name, value in settings.items() if name != "first"},
        "elapsed_s": max(times_s),
        "messages": sum(messages),
        "bytes_sent": sum(payload_B),
        "header_bytes": sum(sent_B) - sum(payload_B),
    }


def _work(op: str, size_bytes: int, root: int, options: Mapping[str, Any]) -> Callable[[Transport], Awaitable[object]]:
    """Return the program that every rank runs.

    The vector's elements are single bytes, so that its parts are nearly equal.
    """
    function = getattr(operations, op)

    async def work(node: Transport) -> None:
        whole = torch.empty(size_bytes, dtype=torch.uint8, device="meta")
        parts: Sequence[Tensor] = whole.tensor_split(node.size)
        arguments: dict[str, tuple[Any, ...]] = {
            "broadcast": ([whole], "bench", root),
            "scatter": (parts, "bench", root),
            "gather": (parts[node.rank], "bench", root),
            "reduce": (whole, "bench", root),
            "all_gather": (parts[node.rank], "bench"),
            "reduce_scatter": (whole, "bench"),
            "all_reduce": (whole, "bench"),
            "all_to_all": (parts, "bench"),
            "barrier": ("bench",),
        }
        await function(node, *arguments[op], **options)

    return work


def _settings(
    run: Callable[..., Any], topology: Topology, size_bytes: int, given: Mapping[str, Any], problems: list[Problem]
) -> tuple[list[int], int, dict[str, Any]]:
    """Return (order of ranks, root's index in it, settings of the schedule).

    Add errors to *problems*.
    """
    taken = inspect.signature(run).parameters
    known = ["order", *(name for name in ("root", "first", "pieces") if name in taken)]
    unknown = [name for name in given if name not in known]
    problems += [Problem(f"--set {name}", f"unknown setting {name!r}", nearest(name, known)) for name in unknown]
    order, first = _order(given.get("order", "ranks"), "first" in taken, topology, size_bytes, problems)
    wanted: dict[str, Any] = {"first": given.get("first", first)} if "first" in taken else {}
    if wanted and wanted["first"] not in ("near", "far"):
        problems.append(Problem("--set first", repr(wanted["first"]), "near or far"))
    root = _whole(given, "root", 0, 0, len(topology.workers) - 1, problems)
    if "pieces" in taken and "pieces" in given:
        wanted["pieces"] = _whole(given, "pieces", 1, 1, 2**16, problems)
    if problems:
        return order, root, wanted
    places = {rank: place for place, rank in enumerate(order)}
    if "sites" in taken:
        sites = sites_of(topology, size_bytes)
        wanted["sites"] = [sorted(places[rank] for rank in site) for site in sites]
    if "weights" in taken:
        wanted["weights"] = weights_of(topology, size_bytes, tuple(topology.workers[rank] for rank in order))
    return order, places[root], wanted


def _order(
    order: Any, has_distances: bool, topology: Topology, size_bytes: int, problems: list[Problem]
) -> tuple[list[int], str]:
    """Return (ranks in order, "near" or "far").

    The string says whether a schedule with distances starts with the nearest or the farthest
    partners.
    """
    workers = topology.workers
    word = order.replace("_", "-") if isinstance(order, str) else ""
    if word == "ranks":
        return list(range(len(workers))), "near"
    if word == "near-first" or (word == "far-first" and has_distances):
        return chain_of(topology, size_bytes, min), word.removesuffix("-first")
    if word == "far-first":
        return chain_of(topology, size_bytes, max), "far"
    names = [part.strip() for part in order.split(",")] if isinstance(order, str) else order
    names = [str(name) for name in names] if isinstance(names, list) else []
    ranks = {name: rank for rank, name in enumerate(workers)} | {str(rank): rank for rank in range(len(workers))}
    found = [ranks.get(name, -1) for name in names]
    if sorted(found) == list(range(len(workers))):
        return found, "near"
    problems.append(Problem("--set order", repr(order), f"{', '.join(ORDERS)}, or a list of all ranks or names"))
    return [], "near"


def _whole(given: Mapping[str, Any], name: str, default: int, least: int, most: int, problems: list[Problem]) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        problems.append(Problem(f"--set {name}", repr(value), f"a whole number from {least} to {most}"))
        return default
    return value
