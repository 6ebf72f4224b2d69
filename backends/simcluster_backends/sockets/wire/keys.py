"""Generate, write and read shared keys, and read tokens. Only the owner may read their files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from simcluster.errors import UsageError

KEY_BYTES = 32
TOKEN_CHARACTERS = 32
OPEN_KEY = hashlib.sha256(b"simcluster: certificates say who may join").digest()
"""A public constant in place of a key, for runs in which TLS certificates are the proof."""


def generate_key() -> bytes:
    """Return a new random key."""
    return secrets.token_bytes(KEY_BYTES)


def write_key(path: Path, key: bytes) -> None:
    """Write *key* in hexadecimal to a new file of mode 0600. Raise UsageError if the file exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        can = f"a file that can be created ({error.strerror})"
        expected = "a new file: no key is overwritten" if path.exists() else can
        raise UsageError("key_file", str(path), expected) from None
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(key.hex() + "\n")
    except OSError as error:  # such as a full disk: leave no partial key
        path.unlink()
        raise UsageError("key_file", str(path), f"a file that can be written ({error.strerror})") from None


def read_key(path: Path) -> bytes:
    """Return the key in *path*: 32 bytes or more, in hexadecimal or base64. Raise UsageError for
    any other file, and for one that other users may read.
    """
    text, key = _private_text(path, "key_file"), None
    with suppress(binascii.Error):
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = base64.b64decode(text, validate=True)
    if key is None or len(key) < KEY_BYTES:
        found = f"{path} with {len(key)} bytes" if key is not None else f"{path} with something else"
        raise UsageError("key_file", found, f"hexadecimal or base64 text of at least {KEY_BYTES} bytes")
    return key


def read_token(path: Path) -> str:
    """Return the token in *path*, one word of at least TOKEN_CHARACTERS. Raise UsageError for any
    other file, and for one that other users may read.

    A key file can serve as a token file.
    """
    text = _private_text(path, "token_file")
    if len(text) < TOKEN_CHARACTERS or not text.isprintable() or " " in text:
        expected = f"one word of at least {TOKEN_CHARACTERS} characters"
        raise UsageError("token_file", f"{path} with something else", expected)
    return text


def key_of(token: str) -> bytes:
    """Return the key of runs that holders of *token* may join. It does not reveal the token."""
    return hmac.new(token.encode(), b"simcluster: the key of runs", "sha256").digest()


def _private_text(path: Path, what: str) -> str:
    """Return the content of *path*. Raise UsageError, naming *what*, if it cannot be read, is not
    ASCII, or may be read by other users.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise UsageError(what, f"{path}, which is not text", "hexadecimal or base64 text") from None
    except OSError as error:
        raise UsageError(what, str(path), f"a file that can be read ({error.strerror})") from None
    if stat.S_IMODE(mode) & 0o077:
        expected = "mode 0600: only its owner may read it"
        raise UsageError(what, f"{path} with mode {stat.S_IMODE(mode):04o}", expected)
    return text
