"""Write the report.html of a sweep: the question, the answer in a sentence, figures, the table.

Every string from the sweep passes through `escape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from simcluster.errors import UsageError
from simcluster.lab.reports.figure_style import without_names
from simcluster.lab.reports.html_page import CURVES, LINES, choice, page, place, section
from simcluster.lab.reports.html_page import table as html_table
from simcluster.lab.reports.sweeps.likely import likely
from simcluster.lab.reports.sweeps.lines import TARGET, combination
from simcluster.lab.reports.sweeps.plots import MEASURES, SweepPlots
from simcluster.runs import words

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_ROWS = 500
BEST: Mapping[str, tuple[str, bool]] = {
    "time_to_target_s": ("The target is reached soonest", False),
    "elapsed_s": ("A run is over soonest", False),
    "accuracy": ("The accuracy is highest", True),
    "loss": ("The loss is lowest", False),
}
"""Measure -> (how a sentence about its best value begins, whether the greatest value is best)."""

SHOWN = ("status", "elapsed_s", "time_to_target_s", "loss", "accuracy", "bytes_sent", "joules", "error", "run")


def render(name: str, table: pd.DataFrame, keys: Sequence[str], plots: SweepPlots) -> str:
    """Return the page of the sweep called *name*."""
    figures = _figures(keys, plots)
    about = {**MEASURES, "speedup": "speed-up", "efficiency": "efficiency"}
    note = "One row per point; its run is the folder of that name under points/."
    body = [
        _header(name, table, keys),
        *(_switched(f"Against {key}", key, about, figures) for key in keys),
        _switched(f"Which {plots.contest[2]} does best", "winner", MEASURES, figures) if plots.contest else "",
        _switched("Both together", "/".join(keys), MEASURES, figures) if len(keys) == 2 else "",
        _convergence(figures, plots),
        section("Points", note, _table(table, keys)),
    ]
    return page(f"{name}, a sweep", "\n".join(body), figures)


def answers(table: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return a sentence per measure on the best and worst values of *keys*, by mean over seeds."""
    found = []
    for measure, (beginning, greatest) in BEST.items():
        if measure not in table or not table[measure].notna().any() or not keys:
            continue
        # Leave out a combination that has a value for only some seeds: their mean would mislead.
        means = table.groupby(list(keys), sort=False)[measure].agg(lambda found: found.mean(skipna=False)).dropna()
        if measure == TARGET and len(means) > 1 and means.nunique() == 1:
            reached = _cell(measure, means.iloc[0])
            found.append(f"The target is reached after {reached} everywhere: it is too easy to tell points apart.")
        if means.nunique() < 2:
            continue
        ordered = list(means.sort_values(ascending=not greatest, kind="stable").items())
        (best, first), (worst, last) = ordered[0], ordered[-1]
        its_value, other_value = _cell(measure, first), _cell(measure, last)
        if its_value != other_value:
            ties = sum(_cell(measure, value) == its_value for _, value in ordered) - 1
            its_value += f" (and with {words.plural(ties, 'other')})" if ties else ""
            with_best, with_worst = _combination(keys, best), _combination(keys, worst)
            found.append(f"{beginning} with {with_best}: {its_value}, against {other_value} with {with_worst}.")
    return found


def _combination(keys: Sequence[str], values: Any) -> str:
    several = values if isinstance(values, tuple) else (values,)
    return words.listing([combination([key], [value]) for key, value in zip(keys, several, strict=True)])


def _header(name: str, table: pd.DataFrame, keys: Sequence[str]) -> str:
    failed = int((table["status"] != "done").sum())
    seeds = table["seed"].nunique()
    counts = words.listing([f"{table[key].nunique()} of {key}" for key in keys])
    about = f"{words.plural(len(table), 'point')}: {counts}"
    about += f", {seeds} seeds each" if seeds > 1 else ""
    sentences = [*answers(table, keys), *likely(table, keys)] or ["All points have the same result."]
    bad = f'<p class="second bad">{words.plural(failed, "point")} failed; see the table.</p>' if failed else ""
    rest = "".join(f'<p class="second">{escape(sentence)}</p>' for sentence in sentences[1:])
    return f"""<header>
<div class="title"><h1>{escape(name)}</h1><span class="pill">sweep</span><span>{escape(about)}</span>
<a href="explorer.html">explore it</a></div>
<p class="headline">{escape(sentences[0])}</p>
{rest}{bad}
<noscript><p>The figures need JavaScript; the table does not.</p></noscript>
</header>"""


def _figures(keys: Sequence[str], plots: SweepPlots) -> dict[str, go.Figure]:
    figures: dict[str, go.Figure] = {}
    for key in keys:
        figures |= {
            f"{key}-{measure}": plots.time_to_target(key) if measure == TARGET else plots.against(key, measure)
            for measure in plots.measures
        }
        if plots.counts_nodes(key):
            with suppress(UsageError):  # Speeds of runs that stop by time cannot be compared.
                figures |= {f"{key}-speedup": plots.speedup(key), f"{key}-efficiency": plots.efficiency(key)}
    for figure in figures.values():
        without_names(figure)
    if plots.contest is not None:
        figures |= {f"winner-{measure}": plots.winner(*plots.contest, by=measure) for measure in plots.measures}
    if len(keys) == 2:
        figures |= {f"{'/'.join(keys)}-{measure}": plots.grid(keys[0], keys[1], measure) for measure in plots.measures}
    for panel in ("loss", "accuracy"):
        if panel in plots.measures:
            for x in plots.axes:
                with suppress(UsageError):  # Runs of one step make no line.
                    figures[f"curve {panel}-{x}"] = without_names(plots.convergence(x, panel))
    return {escape(name): figure for name, figure in figures.items()}


def _switched(title: str, stem: str, about: Mapping[str, str], figures: Mapping[str, go.Figure]) -> str:
    """Return a section with one of the figures STEM-NAME, and buttons that switch between them.

    *about* maps each NAME to its button's text.
    """
    shown = {name: word for name, word in about.items() if escape(f"{stem}-{name}") in figures}
    if not shown:
        return ""
    first = next(iter(shown))
    safe = escape(stem)
    buttons = choice(stem, "what is shown", shown, first) if len(shown) > 1 else ""
    return section(title, "", place(safe, first, safe) + LINES, buttons)


def _convergence(figures: Mapping[str, go.Figure], plots: SweepPlots) -> str:
    stems = [stem for stem in ("curve loss", "curve accuracy") if f"{stem}-time" in figures]
    if not stems:
        return ""
    places = "".join(place(stem, "time", "curve") for stem in stems)
    buttons = choice("curve", "horizontal axis", {x: x for x in plots.axes if f"{stems[0]}-{x}" in figures}, "time")
    return section("Convergence", "", f'{CURVES}<div class="pair">{places}</div>{LINES}', buttons)


def _table(table: pd.DataFrame, keys: Sequence[str]) -> str:
    measured = (name for name in SHOWN if name in table and table[name].notna().any())
    columns = list(dict.fromkeys(("seed", *keys, *measured)))  # The seed may be a swept key.
    rows = [
        {escape(name): escape(_cell(name, row[name])) for name in columns} for _, row in table.head(MAX_ROWS).iterrows()
    ]
    rest = f'<p class="note">The other {len(table) - MAX_ROWS} are in table.csv.</p>' if len(table) > MAX_ROWS else ""
    return html_table(rows) + rest


def _cell(name: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    if name.endswith("_s"):
        return words.seconds(float(value))
    if name == "accuracy":
        return words.accuracy(float(value))
    if name == "bytes_sent":
        return words.size(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
