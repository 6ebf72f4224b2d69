"""Write the report.html of an answered what-if.

Every string from the experiment passes through `escape`.
"""

from __future__ import annotations

from html import escape

from simcluster.lab.reports.html_page import page, section, table
from simcluster.lab.what_if.effects import Effect
from simcluster.lab.what_if.outcome import WhatIf
from simcluster.runs import words

FIGURE = '<div class="figure" data-figure="{}"></div>'


def render(found: WhatIf) -> str:
    """Return the whole page."""
    seeds = "any seed" if found.exact else words.plural(len(found.base), "seed")
    tornado = f"The effect on {found.goal.phrase} of one thing at a time; all else stays. Green is better." + (
        f" Whiskers: from the least to the greatest of {seeds}." if len(found.base) > 1 else ""
    )
    path = (
        "Backwards from the end, each moment belongs to what was waited for: a device at work, a link that was busy, "
        "the latency of one."
    )
    changes = [
        {
            "change": e.change.label,
            "effect": _relative(e),
            found.goal.phrase: found.goal.value(e.value),
            "of single seeds": _range(e),
        }
        for e in found.effects
    ]
    body = "\n".join(
        [
            _header(found, seeds),
            section("What each change would do", tornado, FIGURE.format("tornado")),
            section("Where the time goes", path, FIGURE.format("path")),
            _purchases(found),
            section("Every change", "The mean over seeds; less is better.", _table(changes)),
        ]
    )
    figures = {"tornado": found.plot.tornado(), "path": found.plot.path()}
    return page(f"{found.plan.name}, what if", body, figures)


def _header(found: WhatIf, seeds: str) -> str:
    first, rest = found.sentences[1], [found.sentences[0], *found.sentences[2:]]
    more = "".join(f'<p class="second">{escape(sentence)}</p>' for sentence in rest)
    about = f"{found.plan.algorithm_name} on {found.plan.topology.name}, {seeds}"
    timed = ", timing only" if found.plan.numerics == "none" else ""
    return f"""<header>
<div class="title"><h1>{escape(found.plan.name)}</h1><span class="pill">what if</span>
<span>{escape(about)}{timed}</span></div>
<p class="headline">{escape(first)}</p>
{more}
<noscript><p>The figures need JavaScript; the tables do not.</p></noscript>
</header>"""


def _per_dollar(effect: Effect) -> str:
    return words.ABSENT if effect.value is None else f"{100 * (effect.per_usd or 0.0):.2g} %"


def _purchases(found: WhatIf) -> str:
    title = "What to buy"
    if not found.purchases:
        return section(title, "Nothing on the list of parts is faster than what holds this up.", "")
    rows = [
        {
            "purchase": effect.change.label,
            "price": f"{effect.change.price_usd:g} USD",
            "effect": _relative(effect),
            found.goal.phrase: found.goal.value(effect.value),
            "less for each dollar": _per_dollar(effect),
        }
        for effect in found.purchases
    ]
    about = "One purchase at a time, most gain for a dollar first. Prices are those of the list of parts."
    return section(title, about, _table(rows))


def _relative(effect: Effect) -> str:
    if effect.relative is None:
        return effect.error or "did not get there"
    return _percent(effect.relative)


def _range(effect: Effect) -> str:
    if effect.lowest is None or effect.highest is None:
        return words.ABSENT
    low, high = _percent(effect.lowest), _percent(effect.highest)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _percent(share: float) -> str:
    return "0 %" if abs(share) < 5e-5 else f"{100 * share:+.2f} %".replace("-", "\N{MINUS SIGN}")


def _table(rows: list[dict[str, str]]) -> str:
    return table([{head: escape(text) for head, text in row.items()} for row in rows], {"change", "purchase"})
