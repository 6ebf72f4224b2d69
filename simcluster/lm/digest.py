"""The hash by which answers are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def ids_sha256(tokens: Iterable[int]) -> str:
    """Return the SHA-256 of token ids, as little-endian 32-bit numbers."""
    return hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in tokens)).hexdigest()
