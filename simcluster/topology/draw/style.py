"""The CSS of a drawn topology and its page, for light and dark mode. It loads no other file.

`draw` uses the class names.
"""

from __future__ import annotations

from html import escape

NAME_SIZE, SMALL_SIZE = 14.0, 11.0


def svg_text(x: float, y: float, words: str, classes: str) -> str:
    """Return *words* centred on, starting at or ending at a point, depending on *classes*."""
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def text_width(text: str, size: float) -> float:
    """Estimate the width of *text* from the average width of a letter in a sans-serif font."""
    usual = 0.66 if size == NAME_SIZE else 0.56
    return sum(1.0 if ord(letter) > 0x2E7F else usual for letter in text) * size


SVG_STYLE = """
.topology {
  --ink: #1f2430; --faint: #5d6675; --page: #ffffff; --box: #f3f6fb; --edge: #4a6fa5; --link: #8592a6;
  --switch: #e7e9ee; --site: #f7f8fa;
  --busy0: #a9b4c4; --busy1: #5b9bd5; --busy2: #3aa37a; --busy3: #e0a12b; --busy4: #d6453d;
  font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  .topology {
    --ink: #e8ebf1; --faint: #a3adbd; --page: #14171d; --box: #222b3a; --edge: #7ea6e0; --link: #7a879b;
    --switch: #2c313b; --site: #1a1e26;
    --busy0: #5a6577; --busy1: #5b9bd5; --busy2: #46b98c; --busy3: #eab54a; --busy4: #f0655c;
  }
}
.topology text { fill: var(--ink); text-anchor: middle; dominant-baseline: central; }
.topology .name { font-size: 14px; font-weight: 600; }
.topology .small { font-size: 11px; fill: var(--faint); }
.topology .label { font-size: 11px; }
.topology .under { fill: var(--page); opacity: 0.9; }
.topology .start { text-anchor: start; }
.topology .end { text-anchor: end; }
.topology .worker rect { fill: var(--box); stroke: var(--edge); stroke-width: 1.5; }
.topology .switch rect, .topology .host rect { fill: var(--switch); stroke: var(--faint); stroke-width: 1; }
.topology .site rect { fill: var(--site); stroke: var(--faint); stroke-width: 0.75; stroke-dasharray: 2 4; }
.topology .link { stroke: var(--link); stroke-linecap: round; fill: none; }
.topology .half { stroke-dasharray: 9 7; }
.topology .free { stroke-dasharray: 1 7; }
.topology .busy0 { stroke: var(--busy0); }
.topology .busy1 { stroke: var(--busy1); }
.topology .busy2 { stroke: var(--busy2); }
.topology .busy3 { stroke: var(--busy3); }
.topology .busy4 { stroke: var(--busy4); }
"""

PAGE_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --faint: #5d6675; --page: #ffffff; --rule: #dde2ea; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebf1; --faint: #a3adbd; --page: #14171d; --rule: #2e3542; }
}
body {
  margin: 0 auto; padding: 1.5rem; max-width: 1400px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p { margin: 0.3rem 0 1rem; color: var(--faint); }
.drawing, .table { overflow-x: auto; }
.drawing { text-align: center; }
table { border-collapse: collapse; font-size: 0.9rem; width: 100%; }
th, td { text-align: left; padding: 0.3rem 1.2rem 0.3rem 0; border-top: 1px solid var(--rule); }
td { white-space: nowrap; vertical-align: top; }
th:last-child { width: 100%; }
.sources td:last-child { white-space: normal; min-width: 8rem; color: var(--faint); }
th { border-top: 0; font-weight: 600; white-space: nowrap; }
"""
