"""Text on its way to a terminal: control characters are shown, never obeyed.

Names, reasons and exceptions come from files, own code and other machines, so the command wraps its standard streams in
`VisibleStream` once, before anything is said.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T", bound=AbstractContextManager[Any])

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, except for tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they turn the direction of what follows
    "\u2028\u2029\ud800-\udfff]"  # separators of lines, halves of characters
)


def visible(text: str) -> str:
    r"""Return *text* with every character that could change a terminal written out, as `\x1b`."""
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


class VisibleStream:
    """A text stream that writes control characters out; otherwise the stream that it wraps, which is *raw*."""

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
    """From now on nothing that this process prints can change a terminal."""
    sys.stdout, sys.stderr = (
        stream if isinstance(stream, VisibleStream) else cast(TextIO, VisibleStream(stream))
        for stream in (sys.stdout, sys.stderr)
    )


def console() -> Console:
    """Return a console on standard error that may draw: what it is given has to be visible already."""
    from rich.console import Console

    return Console(file=sys.stderr.raw if isinstance(sys.stderr, VisibleStream) else sys.stderr)


@contextmanager
def drawn(display: T) -> Iterator[T]:
    """Enter *display*, a live one of rich's, which reads colours in what is printed meanwhile: that is made visible."""
    streams = sys.stdout, sys.stderr
    try:
        with display:
            make_visible()
            yield display
    finally:
        sys.stdout, sys.stderr = streams


def title(words: str) -> str:
    """Return *words* for a place in which rich reads markup."""
    from rich.markup import escape

    return escape(visible(words))
