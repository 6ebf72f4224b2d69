"""Make text safe for a terminal: print control characters as escapes, without their effect.

Names, reasons and exceptions come from files, user code and other machines. So a command wraps its
standard streams in `VisibleStream` once, before it prints anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T", bound=AbstractContextManager[Any])

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, except tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they change the direction of text
    "\u2028\u2029\ud800-\udfff]"  # line separators, and surrogates
)


def visible(text: str) -> str:
    r"""Return *text* with every character that could change a terminal written out, as `\x1b`."""
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each of *rows*, with the cells aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class VisibleStream:
    """A wrapper of the text stream *raw* that writes control characters as escapes."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def make_visible() -> None:
    """Wrap the standard streams, so that nothing that this process prints can affect a terminal."""
    sys.stdout, sys.stderr = (
        stream if isinstance(stream, VisibleStream) else cast(TextIO, VisibleStream(stream))
        for stream in (sys.stdout, sys.stderr)
    )


def console() -> Console:
    """Return a rich console on standard error that may draw.

    It bypasses `VisibleStream`: pass foreign text through `visible` first.
    """
    from rich.console import Console

    return Console(file=sys.stderr.raw if isinstance(sys.stderr, VisibleStream) else sys.stderr)


@contextmanager
def drawn(display: T) -> Iterator[T]:
    """Enter the live *display* of rich, and make all text visible that is printed meanwhile.

    rich replaces the standard streams, and would interpret escape sequences in the text.
    """
    streams = sys.stdout, sys.stderr
    try:
        with display:
            make_visible()
            yield display
    finally:
        sys.stdout, sys.stderr = streams


def title(words: str) -> str:
    """Return *words* so that rich, which reads markup in a title, shows them unchanged."""
    from rich.markup import escape

    return escape(visible(words))
