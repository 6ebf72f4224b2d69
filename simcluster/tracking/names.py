"""Names that trackers and file systems accept."""

from __future__ import annotations

import posixpath
import re


def file_name(text: str) -> str:
    """Return *text* as the name of a file or directory."""
    return re.sub(r"[^\w.+-]", "_", text).lstrip(".")[:200] or "_"


def key(text: str) -> str:
    """Return *text* as a key that every tracker accepts: letters, digits, and `_-. :/` in between."""
    return posixpath.normpath(re.sub(r"[^\w./ :-]", "_", text)).lstrip("./")[:250] or "_"
