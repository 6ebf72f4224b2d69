"""Texts cut into tokens by a tokenizer.json, the format of Hugging Face's library tokenizers, which reads it."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simcluster.errors import UsageError
from simcluster.process.installed import install_extra
from simcluster.workloads.models.text import read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_FILE_BYTES = 64 << 20
MOST_TEXT_BYTES = 256 << 20
"""Limit on the bytes of a text, which the library cuts in one piece: it takes about 40 times as much memory."""


def vocabulary_of(file: str) -> int:
    """Return the least vocabulary that holds all tokens of the tokenizer in *file*."""
    return max(read_tokenizer(file).get_vocab().values(), default=-1) + 1


@lru_cache(maxsize=4)
def read_tokenizer(file: str) -> Tokenizer:
    """Return the tokenizer in *file*. Raise UsageError if the library or the file is missing, or if
    the library cannot read the file.
    """
    if find_spec("tokenizers") is None:
        raise UsageError("tokenizer", "no package tokenizers, which reads files", f"it: {install_extra('lm')}")
    from tokenizers import Tokenizer

    expected = "bytes, bpe or the path of a tokenizer.json"
    try:
        size_bytes = Path(file).stat().st_size
        if size_bytes > MOST_FILE_BYTES:
            raise UsageError("tokenizer", f"{file}, of {size_bytes:,} bytes", f"at most {MOST_FILE_BYTES:,}")
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError("tokenizer", f"cannot read {file}: {reason}", expected) from None
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library has no narrower class
        raise UsageError("tokenizer", f"{file}, which the library cannot read: {error}"[:500], expected) from None


@lru_cache(maxsize=2)
def read_file_tokens(text_file: str | None, file: str) -> Tensor:
    """Return the text in *text_file*, or the package's text if it is None, as tokens of the
    tokenizer in *file*, without special tokens.

    Raise UsageError if the text is not UTF-8 or too large.
    """
    content = read_text(text_file)
    if len(content) > MOST_TEXT_BYTES:
        raise UsageError(
            "data", f"{len(content):,} bytes of text", f"at most {MOST_TEXT_BYTES:,} with a tokenizer file"
        )
    try:
        text = content.numpy().tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        expected = "UTF-8, which a tokenizer file needs; or tokenizer: bytes"
        raise UsageError(
            "data", f"byte {error.object[error.start]:#04x} at {error.start} of the text", expected
        ) from None
    return torch.tensor(read_tokenizer(file).encode(text, add_special_tokens=False).ids, dtype=torch.int32)
