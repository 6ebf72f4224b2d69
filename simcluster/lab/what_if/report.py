"""Write the report.html of an answered what-if. Every text from the experiment passes through `escape`."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from simcluster.lab.reports.html_page import page, section
from simcluster.runs import words

if TYPE_CHECKING:
    from simcluster.lab.what_if.effects import Effect
    from simcluster.lab.what_if.outcome import WhatIf

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
    head = ["change", "effect", found.goal.phrase, "of single seeds"]
    changes = [[e.change.label, _relative(e), found.goal.value(e.value), _range(e)] for e in found.effects]
    body = "\n".join(
        [
            _header(found, seeds),
            section("What each change would do", tornado, FIGURE.format("tornado")),
            section("Where the time goes", path, FIGURE.format("path")),
            _purchases(found),
            section("Every change", "The mean over seeds; less is better.", _table(head, changes)),
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


def _purchases(found: WhatIf) -> str:
    title = "What to buy"
    if not found.purchases:
        return section(title, "Nothing on the list of parts is faster than what holds this up.", "")
    rows = [
        [
            effect.change.label,
            f"{effect.change.price_usd:g} USD",
            _relative(effect),
            found.goal.value(effect.value),
            f"{100 * (effect.per_usd or 0.0):.2g} %" if effect.value is not None else words.ABSENT,
        ]
        for effect in found.purchases
    ]
    about = "One purchase at a time, most gain for a dollar first. Prices are those of the list of parts."
    return section(
        title, about, _table(["purchase", "price", "effect", found.goal.phrase, "less for each dollar"], rows)
    )


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


def _table(head: list[str], rows: list[list[str]]) -> str:
    def cells(tag: str, texts: list[str]) -> str:
        kinds = ['class="text"', *("" for _ in texts[1:])]
        return "".join(
            f"<{tag} {kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, texts, strict=True)
        ).replace(" >", ">")

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'
