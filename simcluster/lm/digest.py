"""The hash of an answer's tokens. Two answers with equal hashes have equal tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def ids_sha256(tokens: Iterable[int]) -> str:
    """Return the SHA-256 of *tokens*, each encoded as a little-endian 32-bit integer."""
    return hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in tokens)).hexdigest()
