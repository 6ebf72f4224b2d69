"""Names of the nodes of networkx graphs: the same in a topology and in an overlay on it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_LATIN = re.compile(r"LATIN (SMALL|CAPITAL) LETTER ([A-Z]{1,2})( WITH .*)?")


def node_name(node: Any) -> str:
    """Return the name of *node*: the node (0, 1) of a grid is called 0_1, "São Paulo" Sao_Paulo."""
    text = "_".join(map(str, node)) if isinstance(node, tuple) else str(node)
    letters = "".join(map(_plain, unicodedata.normalize("NFC", text)))
    return f"_{letters[1:]}" if letters.startswith("-") else letters


def _plain(letter: str) -> str:
    """Return *letter* as a name may have it: a Latin letter without its accents, _ for what is no letter. A letter of
    another script is returned as it is: two names must not become one.
    """
    if letter.isascii():
        return letter if letter.isalnum() or letter in "_-" else "_"
    if (found := _LATIN.fullmatch(unicodedata.name(letter, ""))) is not None:
        return found[2] if found[1] == "CAPITAL" else found[2].lower()
    return {"ß": "ss"}.get(letter, letter if letter.isalnum() else "_")
