"""The tables of report.html: nodes, links, faults, groups, a row each.

A column in which nothing is known of anybody is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from simcluster.runs import regroups, words
from simcluster.runs.faults import cells

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder
    from simcluster.topology import Topology


def nodes_table(run: RunFolder, topology: Topology) -> str:
    elapsed_s, lost = run.summary["elapsed_s"], run.summary.get("lost", {})
    rows = []
    for name, node in run.summary["nodes"].items():
        device = topology.nodes[name].device
        sha256 = node["weights_sha256"]
        rows.append(
            [
                str(node["rank"]),
                escape(name) + (' <span class="lost">lost</span>' if name in lost else ""),
                escape(device.name) if device is not None else words.ABSENT,
                _bar(node["compute_s"] / elapsed_s if elapsed_s else 0.0),
                words.seconds(node["compute_s"]),
                words.seconds(node["wait_s"]),
                words.size(node["bytes_sent"]),
                words.size(node["bytes_received"]),
                words.count(node["messages_sent"]),
                words.seconds(node["finished_s"]),
                words.energy(node.get("joules")),
                words.price(node.get("price_usd")),
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
        "energy",
        "price",
        "weights",
    ]
    return _table(heads, rows, text_columns={1, 2})


def links_table(run: RunFolder, topology: Topology) -> str:
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


def faults_table(run: RunFolder) -> str:
    """What the fault plan did, in order; nothing if there was none."""
    rows = [[escape(cell) for cell in cells(row)] for row in run.summary.get("faults", ())]
    heads = ["fault", "of", "settings", "when", "dropped"]
    return _table(heads, rows, text_columns={0, 1, 2, 3}) if rows else ""


def regroups_table(run: RunFolder) -> str:
    """Which groups of ranks were formed anew, in order; nothing if none was."""
    rows = [[escape(cell) for cell in regroups.cells(row)] for row in run.summary.get("regroups", ())]
    heads = ["at", "from step", "lost", "joined", "who goes on"]
    return _table(heads, rows, text_columns={2, 3, 4}) if rows else ""


def _bar(fraction: float) -> str:
    width = min(100.0, max(0.0, fraction * 100))
    return f'<span class="bar"><i style="width:{width:.1f}%"></i></span><b>{escape(words.share(fraction))}</b>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: set[int]) -> str:
    """*rows* are HTML already."""
    rows = list(rows)
    shown = [index for index in range(len(heads)) if any(row[index] != words.ABSENT for row in rows)]

    def html(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if index in text_columns else ''}>{row[index]}</{tag}>" for index in shown
        )

    body = "".join(f"<tr>{html('td', row)}</tr>" for row in rows)
    head = html("th", [escape(name) for name in heads])
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
