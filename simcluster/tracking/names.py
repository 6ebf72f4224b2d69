"""Names that trackers and file systems take."""

from __future__ import annotations

import posixpath
import re


def file_name(text: str) -> str:
    """*text* as the name of one file or folder."""
    return re.sub(r"[^\w.+-]", "_", text).lstrip(".")[:200] or "_"


def key(text: str) -> str:
    """*text* as a key that each tracker takes: letters, digits, and `_-. :/` in between."""
    return posixpath.normpath(re.sub(r"[^\w./ :-]", "_", text)).lstrip("./")[:250] or "_"
