"""Write the report.html of a run: one self-contained page of text, figures and tables.

Every string from the run passes through `escape`.
"""

from __future__ import annotations

import shlex
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from simcluster.lab.reports import report_tables as tables
from simcluster.lab.reports.html_page import CURVES, choice, page, place, section
from simcluster.lab.reports.scales import RECORDED, axes_of
from simcluster.lab.reports.sections import spread
from simcluster.lab.reports.sections.activity import activity_of, windows_of
from simcluster.lab.reports.sections.windows import timeline
from simcluster.runs import words
from simcluster.runs.folder import REPORT, RunFolder
from simcluster.runs.steps import STALENESS
from simcluster.runs.summary import CONSENSUS
from simcluster.runs.write import replace_files
from simcluster.topology import Topology

if TYPE_CHECKING:
    import plotly.graph_objects as go


FAULTS = "What the experiment's plan did to this run. Dropped is what had left its sender and never arrived."
DEVICES = "Devices and what they consume are the topology's, whatever machines the nodes ran on."
BY_NAME = '<h3>By name</h3><p class="note">{}</p>{}'
CALLS = "Collectives and messages of the script, by rank: how long they took, and how long the script waited for them."
GROUPS = "Ranks in step resumed in another group, from the last step that all of its members had ended."


def write_report(run: RunFolder, topology: Topology) -> Path:
    """Write the report of *run* (about 2 MB) and return its path. Raise FolderError on failure."""
    page = render(run, topology)
    replace_files(run.folder, {REPORT: lambda file: file.write(page.encode())})
    return run.folder / REPORT


def render(run: RunFolder, topology: Topology) -> str:
    """Return the page as a string of about 2 MB, nearly all of it plotly.js."""
    from simcluster.topology.draw.draw import draw_svg

    figures, (where, data, packed) = _figures(run), timeline(activity_of(run), windows_of(run))
    use = {name: (link["busy_fraction"], link["bytes"]) for name, link in run.summary["links"].items()}
    nodes = tables.nodes_spread(run, topology)
    if nodes:
        nodes += BY_NAME.format(spread.shown_words(len(run.summary["nodes"]), "nodes", "computed longest"), "")
    nodes += tables.nodes_table(run, topology)
    by_name = spread.shown_words(len(use), "links", "were busiest"), tables.links_table(run, topology)
    if len(topology.nodes) <= spread.MANY:
        network = f'<div class="drawing">{draw_svg(topology, use)}</div>'
        links = section("Links", *by_name)
    else:
        network = f"{tables.links_spread(run, topology)}{BY_NAME.format(*by_name)}"
        links = ""
    body = [
        _header(run, topology),
        _convergence(figures, run),
        _consensus(figures),
        where,
        _listed("Faults", FAULTS, tables.faults_table(run)),
        _listed("Groups", GROUPS, tables.regroups_table(run)),
        section("Network", tables.carried(run.summary), network),
        _listed("Staleness", "The number of updates by staleness.", place("staleness") * ("staleness" in figures)),
        _listed("Calls", CALLS, tables.calls_table(run)),
        section("Nodes", DEVICES * (run.summary["backend"] != "sim"), nodes),
        links,
        _repeat(run),
    ]
    return page(run.label, "\n".join(body), figures, data, packed)


def _figures(run: RunFolder) -> dict[str, go.Figure]:
    """Return name -> figure for all that *run* recorded.

    There is a figure for each x axis that the page offers.
    """
    recorded = set(run.rows["name"])
    if words.timed_only(run.summary):
        recorded -= {"loss", "eval_loss", "eval_accuracy"}
    if not recorded & {"loss", "eval_loss", "eval_accuracy", CONSENSUS, RECORDED, STALENESS}:
        return {}
    # Importing plotly takes longer than writing a page without figures.
    from simcluster.lab.reports.plots import RunPlots

    plots = RunPlots(run)
    figures = dict[str, "go.Figure"]()
    for x in axes_of([run]):
        if recorded & {"loss", "eval_loss"}:
            figures[f"loss-{x}"] = plots.convergence(x, ["loss"])
        if "eval_accuracy" in recorded:
            figures[f"accuracy-{x}"] = plots.convergence(x, ["accuracy"])
    if recorded & {CONSENSUS, RECORDED}:
        figures |= {f"consensus-{x}": plots.consensus(x) for x in axes_of([run])}
    if STALENESS in recorded:
        figures["staleness"] = plots.staleness()
    return figures


def _header(run: RunFolder, topology: Topology) -> str:
    summary = run.summary
    where = {"sim": "simulated", "sockets": "measured on sockets", "torch": "measured on torch.distributed"}
    backend = where.get(summary["backend"], summary["backend"])
    pills = f'<span class="pill">{escape(backend)}</span>'
    if summary["status"] != "done":
        pills += '<span class="pill failed">failed</span>'
    sentence = tables.losses(summary)
    lost = f'<p class="second bad">{escape(sentence)}</p>' if sentence else ""
    failure = ""
    if error := summary.get("error"):
        trace = f"<pre>{escape(error['traceback'])}</pre>" if "traceback" in error else ""
        more = trace and f"<details><summary>The traceback of that node</summary>{trace}</details>"
        failure = f"""<div class="failure" role="alert"><strong>This run failed: {escape(error["type"])}</strong>
<pre>{escape(error["message"])}</pre>{more}</div>"""
    return f"""<header>
<div class="title"><h1>{escape(summary["name"])}</h1>{pills}<span>seed {summary["seed"]:d}</span></div>
<p class="headline">{escape(tables.headline(run, topology))}</p>
<p class="second">{escape(tables.dominated(summary, topology))}</p>
{lost}{failure}{tables.doubts(summary)}
{_cards(summary)}
<noscript><p>The figures need JavaScript; the tables do not.</p></noscript>
</header>"""


def _cards(summary: dict[str, Any]) -> str:
    sha256 = summary["weights_sha256"]
    learnt = [
        ("accuracy", words.accuracy(summary["accuracy"]), "last evaluation"),
        ("loss", words.number(summary["loss"]), "last evaluation"),
        ("final weights", sha256[:8] if sha256 else words.ABSENT, "sha256 at rank 0"),
    ]
    if "perplexity" in summary:
        learnt.insert(2, ("perplexity", words.number(summary["perplexity"]), "last evaluation"))
    if words.timed_only(summary):
        learnt = [("numerics", "none", "timed only")]
    bill = []  # Energy and price are known only if every device has a power and a price.
    if summary.get("joules") is not None:
        mean_W = summary["joules"] / summary["elapsed_s"] if summary["elapsed_s"] else 0.0
        bill.append(("energy", words.energy(summary["joules"]), f"{words.number(mean_W)} W on average"))
    if summary.get("price_usd") is not None:
        bill.append(("price", words.price(summary["price_usd"]), "of the devices' time"))
    cards = [
        *learnt[:2],
        (
            tables.clock_name(summary),
            words.seconds(summary["elapsed_s"]),
            f"{words.seconds(summary['wall_s'])} of wall time",
        ),
        *_steps(summary),
        ("sent", words.size(summary["bytes_sent"]), words.plural(summary["messages_sent"], "message")),
        ("computing", words.share(tables.compute_share(summary)), "mean over devices"),
        *bill,
        *learnt[2:],
    ]
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in cards
    )
    return f'<dl class="cards">{items}</dl>'


def _steps(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return a card for the steps, and one for the updates if a server counts them separately."""
    counts = [("steps", summary["steps"])]
    if summary.get("updates") is not None:
        counts = [("steps per worker", summary["steps"]), ("updates", summary["updates"])]
    lasted_s = summary["elapsed_s"]
    rates = [words.number(count / lasted_s if lasted_s else None) for _, count in counts]
    return [(name, words.count(n), f"{rate} per second") for (name, n), rate in zip(counts, rates, strict=True)]


def _convergence(figures: dict[str, go.Figure], run: RunFolder) -> str:
    stems = [stem for stem in ("loss", "accuracy") if f"{stem}-time" in figures]
    if words.timed_only(run.summary):
        note = "Timed only (numerics: none): nothing was learnt, so there is no loss, accuracy or weight."
        return section("Convergence", note)
    if not stems:
        return section("Convergence", "This run recorded neither loss nor accuracy.")
    places = "".join(place(stem, "time", "x") for stem in stems)
    buttons = choice("x", "horizontal axis", {x: x for x in axes_of([run])}, "time")
    return section("Convergence", "", f'{CURVES}<div class="pair">{places}</div>', buttons)


def _consensus(figures: dict[str, go.Figure]) -> str:
    axes = [name.partition("-")[2] for name in figures if name.startswith("consensus-")]
    if not axes:
        return ""
    buttons = choice("consensus", "horizontal axis", {x: x for x in axes}, "time")
    note = "How far the nodes' models are from the mean of all."
    return section("Consensus", note, place("consensus", "time", "consensus"), buttons)


def _listed(title: str, note: str, content: str) -> str:
    """Return a section; "" if *content* is empty."""
    return section(title, note, content) if content else ""


def _repeat(run: RunFolder) -> str:
    summary = run.summary
    # A relative path also works on another machine; show only the name of an absolute path.
    folder = run.folder.name if run.folder.is_absolute() else run.folder.as_posix()
    found = [("simcluster", summary["version"]), *summary["versions"].items()]
    versions = ", ".join(f"{name} {version}" for name, version in found)
    config = yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True)
    return section(
        "Repeat this run",
        f"Seed {summary['seed']}; {versions}. Trace sha256 {summary['trace_sha256'][:16]}.",
        f"<pre>simcluster run {escape(shlex.quote(folder + '/config.yaml'))}</pre>"
        "<details><summary class='note'>The resolved configuration</summary>"
        f"<pre>{escape(config)}</pre></details>",
    )
