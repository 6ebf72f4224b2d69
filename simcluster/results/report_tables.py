"""The two tables of report.html: one row per node, one row per link.

This file knows the summary, the topology and HTML. It must not know the rest of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from simcluster.results import words

if TYPE_CHECKING:
    from simcluster.results.folder import Run
    from simcluster.topology import Topology


def nodes_table(run: Run, topology: Topology) -> str:
    elapsed_s = run.summary["elapsed_s"]
    nodes = run.summary["nodes"]
    billed = [
        (head, key, form)
        for head, key, form in (("energy", "joules", words.energy), ("price", "price_usd", words.price))
        if any(node.get(key) is not None for node in nodes.values())
    ]
    rows = []
    for name, node in nodes.items():
        device = topology.nodes[name].device
        sha256 = node["weights_sha256"]
        rows.append(
            [
                str(node["rank"]),
                escape(name),
                escape(device.name) if device is not None else words.ABSENT,
                _bar(node["compute_s"] / elapsed_s if elapsed_s else 0.0),
                words.seconds(node["compute_s"]),
                words.seconds(node["wait_s"]),
                words.size(node["bytes_sent"]),
                words.size(node["bytes_received"]),
                words.count(node["messages_sent"]),
                words.seconds(node["finished_s"]),
                *(form(node.get(key)) for _, key, form in billed),
                f"<code>{escape(sha256[:8])}</code>" if sha256 else words.ABSENT,
            ]
        )
    heads = [
        "rank",
        "node",
        "device",
        "computing",
        "computed",
        "waited",
        "sent",
        "received",
        "messages",
        "finished",
    ]
    return _table([*heads, *(head for head, _, _ in billed), "weights"], rows, text_columns={1, 2})


def links_table(run: Run, topology: Topology) -> str:
    use = run.summary["links"]
    rows = [
        [
            escape(link.name),
            words.bandwidth(link.bandwidth_Bps),
            words.seconds(link.latency_s),
            escape(str(link.duplex)),
            words.size(use[link.name]["bytes"]),
            _bar(use[link.name]["busy_fraction"]),
        ]
        for link in topology.links
        if link.name in use
    ]
    heads = ["link", "bandwidth", "latency", "duplex", "carried", "busy"]
    return f'<div class="links">{_table(heads, rows, text_columns={0})}</div>'


def _bar(fraction: float) -> str:
    width = min(100.0, max(0.0, fraction * 100))
    return f'<span class="bar"><i style="width:{width:.1f}%"></i></span>{words.share(fraction)}'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: set[int]) -> str:
    """*rows* are HTML already."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if index in text_columns else ''}>{cell}</{tag}>" for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = cells("th", [escape(name) for name in heads])
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
