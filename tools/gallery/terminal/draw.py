"""Draws the recorded terminal: commands are typed, outputs appear, and the final state stays.

The animation uses CSS. Readers who prefer less motion, and programs without animations, see the
final state at once. Waits are as long as recorded, up to a limit.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

from tools.gallery.svg import number, picture
from tools.gallery.terminal.record import DATA

WIDTH = 800.0
LEFT = 18.0
TOP = 50.0
ROW = 18.5
LETTER = 7.8
COLUMNS = 96
SHOWN = {"compare": 13}
"""Command -> the number of lines of its output that are shown before an ellipsis."""

TYPED_S = 0.035
PAUSE_S = 0.6
WAIT_S = 3.0
"""Seconds for a typed letter and before each command, and the longest wait for a
command's output.
"""

RULES = (
    'text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}',
    ".typed{fill:var(--page)}.prompt{fill:#2a9d74}.key{font-weight:700;fill:#2f7fb8}.dot{fill:var(--rule)}",
    "@keyframes show{from{opacity:0}}",
    ".out{animation:show .05s both}",
    "@media(prefers-color-scheme:dark){.key{fill:#6fb4e6}.prompt{fill:#46b98c}}",
    "@media(prefers-reduced-motion:reduce){.out{animation:none}.typed{display:none}}",
)
KEY = "The same weights to the bit"


class Row(NamedTuple):
    """A line of the terminal, which appears at *at_s*.

    If it is a command, its typing begins then.
    """

    words: str
    at_s: float
    kind: Literal["command", "key", "output"] = "output"


def rows(commands: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the lines that the terminal shows for *commands*."""
    found: list[Row] = []
    at_s = 0.0
    for one in commands:
        at_s += PAUSE_S
        found.append(Row(one["command"], at_s, "command"))
        at_s += TYPED_S * len(one["command"]) + min(one["took_s"], WAIT_S)
        lines = one["output"].rstrip().splitlines()
        most = SHOWN.get(one["command"].split()[1], len(lines))
        shown = [*lines[:most], *(["..."] if len(lines) > most else [])]
        found += [row for line in shown for row in _wrapped(line, at_s)]
        found.append(Row("", at_s))
    return found[:-1]


def _wrapped(line: str, at_s: float) -> list[Row]:
    kind: Literal["key", "output"] = "key" if line.startswith(KEY) else "output"
    return [Row(piece, at_s, kind) for piece in textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]]


def draw(content: Mapping[str, Any]) -> str:
    """Return the animated picture of a recording."""
    shown = rows(content["commands"])
    height = TOP + ROW * len(shown) + 12
    dots = "".join(f'<circle class="dot" cx="{number(22 + 18 * k)}" cy="20" r="5.5"/>' for k in range(3))
    line = f'<path class="row" d="M.5 36.5H{number(WIDTH - 0.5)}" stroke-width="1"/>'
    parts = [dots, line, *(_row(index, row) for index, row in enumerate(shown))]
    title = "A terminal: " + "; ".join(one["command"] for one in content["commands"]) + f". {KEY}."
    return picture(WIDTH, height, title, parts, *RULES, *_typing(shown))


def _row(index: int, row: Row) -> str:
    y = TOP + ROW * (index + 0.5)
    if row.kind == "command":
        place = f'x="{number(LEFT + 2 * LETTER)}" y="{number(y - 14)}"'
        size = f'width="{number(LETTER * len(row.words) + 4)}" height="19"'
        cover = f'<rect class="typed t{index}" {place} {size}/>'
        words = f'<text x="{number(LEFT)}" y="{number(y)}"><tspan class="prompt">$</tspan> {escape(row.words)}</text>'
        return f'<g class="out" style="animation-delay:{row.at_s - PAUSE_S:.2f}s">{words}{cover}</g>'
    if not row.words.strip():
        return ""
    words = f'<text class="{row.kind}" x="{number(LEFT)}" y="{number(y)}">{escape(row.words)}</text>'
    return f'<g class="out" style="animation-delay:{row.at_s:.2f}s">{words}</g>'


def _typing(shown: Sequence[Row]) -> list[str]:
    """Return the CSS rules for typing.

    A cover over each command moves to the right, letter by letter, and then disappears.
    """
    rules = []
    for index, row in enumerate(shown):
        if row.kind == "command":
            letters = len(row.words)
            rules.append(f"@keyframes k{index}{{to{{transform:translateX({number(LETTER * letters + 4)}px)}}}}")
            motion = f"k{index} {TYPED_S * letters:.2f}s steps({letters}) {row.at_s:.2f}s both"
            rules.append(f".t{index}{{animation:{motion},hide .01s {row.at_s + TYPED_S * letters:.2f}s both}}")
    return [*rules, "@keyframes hide{to{opacity:0}}"]


def drawn() -> str:
    """Return the picture of the stored recording."""
    return draw(json.loads(DATA.read_text(encoding="utf-8")))
