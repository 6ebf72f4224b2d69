"""Coroutines that are thrown away without an await: each is noticed, with the line that made it."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from simcluster.process.places import is_own

_SAID = re.compile(r"coroutine '(?P<name>[^']+)' was never awaited")
_MADE = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


@contextmanager
def unawaited_noticed(notice: Callable[[str, str], object]) -> Iterator[None]:
    """Call *notice* with (name, "file:line (function)") for each coroutine of user code that is never awaited.

    Python finds one when it is freed, which for `node.send(...)` is at once, and would print a warning. Anything else
    that it warns of is shown as before. Not for contexts that overlap: the warnings of a process have one handler.
    """
    depth = sys.get_coroutine_origin_tracking_depth()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", _SAID.pattern, RuntimeWarning)
        shown = warnings.showwarning

        def say(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
            line: str | None = None,
        ) -> None:  # fmt: skip
            said, made = _SAID.match(str(message)), _MADE.findall(str(message))
            if said is None or not made or not is_own(made[-1][0]):
                shown(message, category, filename, lineno, file, line)
                return
            notice(said["name"], "{}:{} ({})".format(*made[-1]))

        warnings.showwarning = say
        sys.set_coroutine_origin_tracking_depth(max(depth, 1))
        try:
            yield
        finally:
            sys.set_coroutine_origin_tracking_depth(depth)
