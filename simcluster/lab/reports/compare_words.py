"""Describe a comparison of two runs as sentences and columns of plain text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simcluster.runs import words
from simcluster.runs.calls import CallTotals
from simcluster.runs.comparison.compare import TOLERANCE, Judgement, RunPair
from simcluster.runs.comparison.prediction import PHASES, PredictedMemory, PredictedTime
from simcluster.units import format_size

MAX_SETTINGS = 20
MAX_ROWS = 40
MAX_NODES = 20
MAX_LINKS = 40

Columns = Mapping[str, tuple[str, Callable[[Any], str]]]
"""Heading -> (key of a summary, function from its value to text)."""
OF_NODES: Columns = {
    "computed": ("compute_s", words.seconds),
    "waited": ("wait_s", words.seconds),
    "sent": ("bytes_sent", words.count),
}
OF_LINKS: Columns = {"bytes": ("bytes", words.count), "busy": ("busy_fraction", words.share)}


def describe(pair: RunPair) -> str:
    """Return the whole comparison as text, from the headline to single nodes and links."""
    blocks = [
        columns([["a", str(pair.a.folder), pair.a.label], ["b", str(pair.b.folder), pair.b.label]], left=3),
        headline(pair),
        _doubts(pair),
        _kernels(pair.kernels) if pair.kernels is not None else "",
        _totals(pair),
        _settings(pair),
        _metrics(pair),
        _sides(pair, "node", OF_NODES, "weights", "weights_sha256"),
        columns(describe_calls(pair.calls)) if pair.calls else "",
        _uncounted(pair) if pair.calls else "",
        columns(describe_memory(pair.memory)) if pair.memory else "",
        _links(pair),
        columns(describe_phases(pair.phases)) if pair.phases else "",
        columns(describe_links(pair.transits)) if pair.transits and not pair.is_elsewhere else "",
        _compared(pair),
    ]
    return "\n\n".join(block for block in blocks if block)


def _links(pair: RunPair) -> str:
    if pair.is_elsewhere:
        name = pair.a.summary["topology"]
        return (
            f"The measured nodes share one machine, which is not {name}: counts, weights, metrics and times are "
            "compared, energy and links are not."
        )
    has_links = pair.a.summary["links"] or pair.b.summary["links"]
    return _sides(pair, "link", OF_LINKS, "", "bytes") if has_links else ""


def headline(pair: RunPair) -> str:
    """Return a sentence that compares the results and the times, or names the failures."""
    failures = []
    for run, side in ((pair.a, "a"), (pair.b, "b")):
        if run.summary["status"] != "done":
            error = run.summary["error"]
            first_line = error["message"].partition("\n")[0]
            failures.append(f"{side} failed: {error['type']}" + (f": {first_line}" if first_line else ""))
    return f"{'; '.join(failures)}." if failures else f"{_weights(pair)}; {_times(pair)}."


def _doubts(pair: RunPair) -> str:
    sides = (("a", pair.a), ("b", pair.b))
    return "\n".join(f"warning: {side}: {row['text']}" for side, run in sides for row in run.warnings)


def _weights(pair: RunPair) -> str:
    sha256 = str(pair.a.summary["weights_sha256"])
    others = pair.nodes_with_other_weights
    timed = [side for run, side in ((pair.a, "a"), (pair.b, "b")) if words.timed_only(run.summary)]
    if timed:
        same = "The same trace to the bit, but no" if pair.same_trace else "No"
        verb = "was" if len(timed) == 1 else "were"
        return f"{same} final weights to compare: {words.listing(timed)} {verb} timed only (numerics: none)"
    if pair.same_weights is None:
        return "No final weights to compare"
    if pair.same_trace and pair.same_weights and not others:
        return f"The same run to the bit, trace and weights (sha256 {sha256[:12]})"
    if pair.same_weights and not others:
        return f"The same weights to the bit (sha256 {sha256[:12]})"
    if pair.same_weights:
        return f"The same weights at rank 0 (sha256 {sha256[:12]}), others at {_some(others)}"
    if pair.kernels is not None and pair.kernels.within:
        return f"The same final weights within {TOLERANCE:g} of their norm, from unlike kernels"
    return f"Different final weights ({_some(others)})"


def _kernels(kernels: Judgement) -> str:
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for node, key, a, b in kernels.found:
        nodes.setdefault((key, a, b), []).append(node)
    rows = [f"  {key} at {_some(names)}: {_short(a, 120)} -> {_short(b, 120)}" for (key, a, b), names in nodes.items()]
    if kernels.difference is None:
        judged = "Not judged by a tolerance: rank 0 has not left the same tensors in both runs."
    else:
        verdict = "within" if kernels.within else "more than"
        judged = (
            f"Final weights differ by {kernels.difference:.2g} of their norm: {verdict} the tolerance, {TOLERANCE:g}."
        )
    return "\n".join(["Unlike kernels, which round differently:", *rows, judged])


def _some(names: Sequence[str]) -> str:
    return words.some(names, 6)


def _times(pair: RunPair) -> str:
    ratio = f" (x{pair.elapsed_ratio:.3g})" if pair.elapsed_ratio is not None else ""
    a, b = (words.seconds(run.summary["elapsed_s"]) for run in pair.predicted_and_measured or (pair.a, pair.b))
    if pair.predicted_and_measured is None:
        return f"{a} and {b}{ratio}"
    expected = inside = ""
    if pair.interval is not None:
        low, high = (words.seconds(pair.interval[side]) for side in ("low", "high"))
        expected = f" ({low} to {high} with {words.share(pair.interval['level'])})"
        inside = f", which lies {'inside' if pair.interval['inside'] else 'outside'}"
    where = " on one machine" if pair.is_elsewhere else ""
    return f"predicted {a}{expected}, measured {b}{where}{inside}{ratio}"


def _compared(pair: RunPair) -> str:
    """Return a line with the predicted and the measured time; "" unless both runs are complete."""
    if pair.predicted_and_measured is None or pair.elapsed_ratio is None:
        return ""
    predicted, measured = (run.summary for run in pair.predicted_and_measured)
    if predicted["steps"] != measured["steps"] or {predicted["status"], measured["status"]} != {"done"}:
        return ""
    what = f"{words.count(measured['steps'])} steps of {measured['algorithm']} on {measured['topology']}"
    times = f"predicted {words.seconds(predicted['elapsed_s'])}, measured {words.seconds(measured['elapsed_s'])}"
    return f"Compared: {what}, {times}, measured / predicted {pair.elapsed_ratio:.3f}"


def _totals(pair: RunPair) -> str:
    a, b = pair.a.summary, pair.b.summary
    ratio = f"x{b['elapsed_s'] / a['elapsed_s']:.3g}" if a["elapsed_s"] else ""
    rows = [["", "a", "b", ""], ["time", words.seconds(a["elapsed_s"]), words.seconds(b["elapsed_s"]), ratio]]
    formats: list[tuple[str, str, Callable[[Any], str]]] = [
        ("steps", "steps", words.count),
        ("messages", "messages_sent", words.count),
        ("bytes", "bytes_sent", words.count),
        ("accuracy", "accuracy", "{:.9g}".format),
        ("loss", "loss", "{:.9g}".format),
        ("perplexity", "perplexity", "{:.9g}".format),
        ("weights", "weights_sha256", lambda sha256: str(sha256[:12])),
    ]
    if pair.step_s is not None:
        a_s, b_s = pair.step_s
        rows.append(["median step", words.seconds(a_s), words.seconds(b_s), f"x{b_s / a_s:.3g}" if a_s else ""])
    for name, key, form in formats:
        ours, theirs = a.get(key), b.get(key)
        if ours is not None or theirs is not None:
            cells = [words.ABSENT if value is None else form(value) for value in (ours, theirs)]
            rows.append([name, *cells, _verdict(ours, theirs)])
    bill = (("energy", "joules", words.energy), ("price", "price_usd", words.price))
    for name, key, form in () if pair.is_elsewhere else bill:
        x, y = a.get(key), b.get(key)
        if x is not None or y is not None:
            rows.append([name, form(x), form(y), f"x{y / x:.3g}" if x and y is not None else ""])
    return columns(rows)


def _verdict(a: Any, b: Any) -> str:
    if a is None or b is None:
        return words.ABSENT
    return "equal" if a == b else "different"


def _settings(pair: RunPair) -> str:
    if not pair.settings:
        return "Settings: all equal."
    rows = [[f"  {key}", _short(a), "->", _short(b)] for key, a, b in pair.settings[:MAX_SETTINGS]]
    more = len(pair.settings) - MAX_SETTINGS
    ending = f"\n  and {more} more" if more > 0 else ""
    return f"Settings: {words.plural(len(pair.settings), 'difference')}.\n{columns(rows, left=4)}{ending}"


def _short(value: Any, limit: int = 40) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _metrics(pair: RunPair) -> str:
    found = pair.metrics
    sides = [f"{words.count(n)} only in {side}" for n, side in ((found.only_a, "a"), (found.only_b, "b")) if n]
    ending = f" ({', '.join(sides)})" if sides else ""
    numbers = words.plural(found.in_both, "number")
    if found.first is None:
        verdict = "all equal to the bit" if found.in_both else "nothing to compare"
        return f"Metrics: {numbers} in both, {verdict}{ending}."
    step, node, name, a, b = found.first
    return (
        f"Metrics: {numbers} in both, {words.count(found.differ)} differ{ending}.\n"
        f"  first at step {step}, {node}, {name}: {a!r} -> {b!r}"
    )


def _sides(pair: RunPair, what: str, shown: Columns, verdict: str, judged: str) -> str:
    """Return a table with a row per node or link (*what*) of either run.

    The table has the columns *shown* for both runs, and a column *verdict* that compares their
    values of *judged*.
    """
    a, b = pair.a.summary[f"{what}s"], pair.b.summary[f"{what}s"]
    names = list(dict.fromkeys([*a, *b]))
    rows = [[what, *(head for name in shown for head in (f"{name} a", "b")), verdict]]
    for name in names[:MAX_ROWS]:
        if name in a and name in b:
            cells = [form(side[name][key]) for key, form in shown.values() for side in (a, b)]
            rows.append([name, *cells, _verdict(a[name][judged], b[name][judged])])
        else:
            rows.append([name, f"only in {'a' if name in a else 'b'}"])
    return columns(rows) + (f"\n  and {len(names) - MAX_ROWS} more {what}s" if len(names) > MAX_ROWS else "")


def columns(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return *rows* as text; the first *left* columns are flush left, the others flush right."""
    width = max(len(row) for row in rows)
    # A row with fewer cells is a remark: it affects only the width of the first column.
    full = [row for row in rows if len(row) == width]
    widths = [max(len(row[column]) for row in full) for column in range(width)]
    widths[0] = max(len(row[0]) for row in rows)
    lines = []
    for row in rows:
        cells = [
            cell.ljust(widths[index]) if index < left or len(row) < width else cell.rjust(widths[index])
            for index, cell in enumerate(row)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def describe_phases(phases: Mapping[str, Mapping[str, PredictedTime]]) -> list[list[str]]:
    """Return rows with the times of *phases*: a heading, the sum over all nodes, then each node."""
    sums = [[times[phase] for times in phases.values()] for phase in PHASES]
    total = [PredictedTime(*(sum(side) for side in zip(*times, strict=True))) for times in sums]
    rows = [["predicted, measured", *(text for phase in PHASES for text in (phase, "", ""))]]
    rows.append(["all nodes", *(cell for times in total for cell in _three(times))])
    for name, of_phases in list(phases.items())[:MAX_NODES]:
        rows.append([name, *(cell for phase in PHASES for cell in _three(of_phases[phase]))])
    if len(phases) > MAX_NODES:
        rows.append([f"and {len(phases) - MAX_NODES} more nodes"])
    return rows


def _uncounted(pair: RunPair) -> str:
    sides = [side for side, run in (("a", pair.a), ("b", pair.b)) if run.summary["backend"] == "torch"]
    if len(sides) != 1:
        return ""
    return f"gloo made the calls of {sides[0]}, by its own schedules: their messages are not counted."


def describe_calls(calls: Mapping[str, Mapping[str, Mapping[str, CallTotals]]]) -> list[list[str]]:
    """Return rows: a heading, then the number, bytes and times of calls by node and operation."""
    rows = [["calls", *(cell for name in ("calls", "bytes", "took", "waited") for cell in (f"{name} a", "b"))]]
    for node, of_node in list(calls.items())[:MAX_NODES]:
        for operation, sides in of_node.items():
            a, b = (sides.get(side, CallTotals(0, 0, 0.0, 0.0)) for side in ("a", "b"))
            forms: tuple[Callable[[Any], str], ...] = (words.count, words.count, words.seconds, words.seconds)
            cells = [form(value) for form, *both in zip(forms, a, b, strict=True) for value in both]
            rows.append([f"{node} {operation}", *cells])
    if len(calls) > MAX_NODES:
        rows.append([f"and {len(calls) - MAX_NODES} more nodes"])
    return rows


def describe_memory(memory: Mapping[str, PredictedMemory]) -> list[list[str]]:
    """Return rows: a heading, then each node's predicted memory and the growth of its process."""
    rows = [["memory", "predicted", "grown", ""]]
    for name, each in list(memory.items())[:MAX_NODES]:
        cells = [words.ABSENT if size is None else format_size(size) for size in each]
        rows.append([name, *cells, "" if each.ratio is None else f"x{each.ratio:.3g}"])
    if len(memory) > MAX_NODES:
        rows.append([f"and {len(memory) - MAX_NODES} more nodes"])
    return rows


def describe_links(links: Mapping[str, PredictedTime]) -> list[list[str]]:
    """Return rows: a heading, then each link with its predicted and measured time per message."""
    rows = [["send to receipt", "predicted", "measured", ""]]
    rows += [[name, *_three(times)] for name, times in list(links.items())[:MAX_LINKS]]
    if len(links) > MAX_LINKS:
        rows.append([f"and {len(links) - MAX_LINKS} more links"])
    return rows


def _three(times: PredictedTime) -> list[str]:
    ratio = "" if times.ratio is None else f"x{times.ratio:.3g}"
    return [words.seconds(times.predicted_s), words.seconds(times.measured_s), ratio]
