"""Draw the state of a run in a terminal: its progress, nodes, links and stragglers.

Names, reasons and waits may come from other machines. They are inserted as plain text: they are
never parsed as markup, and none of their escape sequences reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from simcluster.runs import words
from simcluster.units import format_bandwidth, format_latency, format_size
from simcluster.watching.status import Values

BARS = "▁▂▃▄▅▆▇█"
SPARK = 40
LEAST_ROWS = 4
MOST_LINKS = 6
MOST_WARNINGS = 4
WIDE, NARROW = 100, 75
"""Widths in columns: from WIDE on, nodes show their waits; below NARROW, columns are left out."""

COLUMNS = ("rank", "node", "state", "step", "steps/s", "a step's work", "loss", "staleness", "sent")

STYLES = {"lost": "bold red", "ended": "dim", "expected": "dim", "joined": "dim", "running": ""}


def draw(run: Values, history: Sequence[Values], *, width: int, height: int) -> RenderableType:
    """Return a drawing of *run* in *width* columns and about *height* lines.

    If not all nodes fit, stragglers come first, then lost nodes.
    """
    warned = _warnings(run["warnings"])
    links = [link for link in run["links"] if link["bytes"]]
    links = sorted(links, key=lambda link: -(link["busy_fraction"] or 0.0))[:MOST_LINKS]
    held_out = _held_out(run)
    used = 6 + len(held_out) + len(warned) + (len(links) + 3 if links else 0)
    losses = [moment["loss"] for moment in history if moment["loss"] is not None]
    bars = Text.assemble(("loss ", "dim"), (spark(losses), "green"), no_wrap=True) if losses else Text("")
    nodes = _nodes(run, max(LEAST_ROWS, height - used), width)
    parts: list[RenderableType] = [_head(run), _numbers(run), *held_out, bars, Text(""), nodes]
    if links:
        parts += [Text(""), _links(links)]
    return Group(*parts, *warned)


def plain(text: object) -> str:
    """Return *text* without characters that could affect a terminal."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def spark(values: Sequence[float], width: int = SPARK) -> str:
    """Return *values* as a row of bars, with the latest at the right.

    If there are more values than *width*, each bar shows the last value of its part.
    """
    if not values:
        return ""
    picked = [values[(i + 1) * len(values) // width - 1] for i in range(width)] if len(values) > width else values
    low, high = min(picked), max(picked)
    top = len(BARS) - 1
    return "".join(BARS[round((value - low) / (high - low) * top) if high > low else 0] for value in picked)


def _head(run: Values) -> Text:
    colour = {"failed": "bold red", "done": "bold green"}.get(run["state"], "bold cyan")
    where = f"{run['algorithm']} on {run['topology']} ({run['backend']}, seed {run['seed']})"
    again = f", attempt {run['attempt']}" if run["attempt"] > 1 else ""
    line = Text(no_wrap=True, overflow="ellipsis")
    for part, style in ((run["name"], "bold"), (run["state"], colour), (where + again, "dim")):
        line.append(f"{plain(part)}  ", style)
    return line


def _numbers(run: Values) -> Text:
    steps = f"{run['step']}" + (f"/{run['steps']}" if run["steps"] is not None else "")
    clock = "virtual" if run["backend"] == "sim" else "measured"
    found = [f"step {steps}", f"{format_latency(run['elapsed_s'])} ({clock})", f"{run['steps_per_s']:.4g} steps/s"]
    if run["loss"] is not None:
        found.append(f"loss {run['loss']:.4g}")
    if run["remaining_s"] is not None:
        found.append(f"{format_latency(run['remaining_s'])} to go")
    return Text("   ".join(found), no_wrap=True, overflow="ellipsis")


def _held_out(run: Values) -> list[Text]:
    """Return a line with the last evaluation; [] if there has been none."""
    known = {word: run[f"eval_{word}"] for word in ("loss", "accuracy") if run[f"eval_{word}"] is not None}
    found = ", ".join(f"{word} {value:.4g}" for word, value in known.items())
    line = f"held-out {found} (step {run['eval_step']})"
    return [Text(line, no_wrap=True, overflow="ellipsis")] if found else []


def _nodes(run: Values, rows: int, width: int) -> Table:
    slow = {warning["name"]: warning["ratio"] for warning in run["warnings"] if warning["kind"] == "straggler"}
    nodes = run["nodes"]
    if len(nodes) > rows:
        first = sorted(nodes, key=lambda node: (node["name"] not in slow, node["state"] != "lost", node["rank"]))
        nodes = sorted(first[: rows - 1], key=lambda node: node["rank"])
    table = Table(box=None, pad_edge=False, header_style="dim")
    shown = len(COLUMNS) if width >= NARROW else COLUMNS.index("loss")
    for title in COLUMNS[:shown]:
        table.add_column(title, justify="left" if title in ("node", "state") else "right", no_wrap=True)
    if width >= WIDE:
        table.add_column("waits for", no_wrap=True, overflow="ellipsis")
    for node in nodes:
        style = "yellow" if node["name"] in slow else STYLES.get(node["state"], "")
        work_s = node["compute_s_per_step"]
        again = f" ({slow[node['name']]:.1f}x)" if node["name"] in slow else ""
        cells = [
            str(node["rank"]),
            plain(node["name"]),
            node["state"],
            str(node["step"]),
            f"{node['steps_per_s']:.4g}",
            (format_latency(work_s) if work_s is not None else "-") + again,
            words.number(node["loss"]),
            words.number(node["staleness"]),
            format_size(node["bytes_sent"]),
        ]
        del cells[shown:]
        if width >= WIDE:
            cells.append("" if node["computing"] else plain(", ".join(node["waits"])))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    if len(nodes) < len(run["nodes"]):
        table.add_row("", Text(f"and {len(run['nodes']) - len(nodes):,} more", style="dim"))
    return table


def _links(links: Sequence[Values]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("link", "use", "", "there", "back", "of", "carried"):
        table.add_column(title, justify="left" if title in ("link", "use") else "right", no_wrap=True)
    for link in links:
        busy, capacity = link["busy_fraction"], link["capacity_Bps"]
        filled = round(12 * min(1.0, busy or 0.0))
        table.add_row(
            Text(plain(link["name"])),
            Text("█" * filled + "░" * (12 - filled), style="red" if (busy or 0.0) >= 0.9 else "cyan"),
            f"{100 * busy:.0f} %" if busy is not None else "",
            _rate(link["forward_Bps"]),
            _rate(link["backward_Bps"]),
            format_bandwidth(capacity) if capacity else "",
            format_size(link["bytes"]),
        )
    return table


def _warnings(warnings: Sequence[Values]) -> list[Text]:
    shown = [Text(f"! {plain(warning['text'])}", style="yellow", overflow="fold") for warning in warnings]
    if len(shown) > MOST_WARNINGS:
        more = len(shown) - MOST_WARNINGS
        shown = [*shown[:MOST_WARNINGS], Text(f"! and {more} more warning{'s' * (more > 1)}", style="yellow")]
    return shown


def _rate(rate_Bps: float) -> str:
    return format_bandwidth(rate_Bps) if rate_Bps else "0"
