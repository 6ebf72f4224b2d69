"""Names of the nodes of networkx graphs: the same in a topology and in an overlay on it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_LATIN = re.compile(r"LATIN (SMALL|CAPITAL) LETTER ([A-Z]{1,2})( WITH .*)?")


def node_name(node: Any) -> str:
    """Return the name of *node* in a topology: 0_1 for the node (0, 1) of a grid, Sao_Paulo for
    "São Paulo".
    """
    text = "_".join(map(str, node)) if isinstance(node, tuple) else str(node)
    letters = "".join(map(_plain, unicodedata.normalize("NFC", text)))
    # A leading hyphen would make the name look like an option on a command line.
    return f"_{letters[1:]}" if letters.startswith("-") else letters


def _plain(letter: str) -> str:
    """Return *letter* in a form that a name can have.

    A Latin letter loses its accents, and a character that is not a letter becomes _. A letter of
    another script is returned unchanged: if all became _, two names could become the same.
    """
    if letter.isascii():
        return letter if letter.isalnum() or letter in "_-" else "_"
    if (found := _LATIN.fullmatch(unicodedata.name(letter, ""))) is not None:
        return found[2] if found[1] == "CAPITAL" else found[2].lower()
    return {"ß": "ss"}.get(letter, letter if letter.isalnum() else "_")
