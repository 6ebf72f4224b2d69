"""A run as its board knows it, in plain JSON values: for pages, terminals and machines."""

from __future__ import annotations

from typing import Any

from simcluster.watching.board import Board, plain
from simcluster.watching.stragglers import warnings


def run_status(board: Board) -> dict[str, Any]:
    """Return the run of *board*, its nodes, links, faults and warnings, without the history."""
    run, last = board.run, board.last
    elapsed_s = last.elapsed_s if last is not None else 0.0
    end_s = board.predicted_end_s
    found: dict[str, Any] = plain(
        {
            "name": run.name,
            "state": board.state,
            "error": board.error,
            "attempt": run.attempt,
            "algorithm": run.algorithm,
            "topology": run.topology,
            "backend": run.backend,
            "seed": run.seed,
            "world_size": len(run.nodes),
            "elapsed_s": elapsed_s,
            "step": board.steps,
            "steps": run.steps,
            "loss": board.loss,
            "steps_per_s": board.steps_per_s,
            "predicted_end_s": end_s,
            "remaining_s": None if end_s is None else end_s - elapsed_s,
            "nodes": _nodes(board),
            "links": _links(board),
            "faults": last.faults if last is not None else [],
            "warnings": warnings(board),
            "map": run.map.model_dump() if run.map is not None else None,
        }
    )
    return found


def _nodes(board: Board) -> list[dict[str, Any]]:
    return [
        node.model_dump() | {"steps_per_s": board.rate_of(node), "compute_s_per_step": board.compute_of(node)}
        for node in (board.last.nodes if board.last is not None else ())
    ]


def _links(board: Board) -> list[dict[str, Any]]:
    rates = board.link_rates()
    found = []
    for link in board.last.links if board.last is not None else ():
        forward, backward = rates[link.name]
        busy = max(forward, backward) / link.capacity_Bps if link.capacity_Bps else None
        found.append(
            {
                "name": link.name,
                "bytes": link.bytes_forward + link.bytes_backward,
                "bytes_forward": link.bytes_forward,
                "bytes_backward": link.bytes_backward,
                "forward_Bps": forward,
                "backward_Bps": backward,
                "capacity_Bps": link.capacity_Bps,
                "busy_fraction": busy,
            }
        )
    return found
