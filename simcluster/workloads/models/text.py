"""Text as bytes or tokens, from the package or a file. It is split into windows in which each
element predicts the next.
"""

from __future__ import annotations

import lzma
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from simcluster.errors import UsageError
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.models.bpe import BpeTokenizer, train

EMBEDDED = Path(__file__).parent / "data" / "sqlite3.h.xz"

HELD_OUT = 10
"""The divisor that gives the held-out part of a text: its last 1/HELD_OUT."""


@lru_cache(maxsize=2)
def read_text(file: str | None = None) -> Tensor:
    """Return the bytes of *file*, or of the package's text if it is None, as uint8. Raise
    UsageError if the file cannot be read.

    A regular file is mapped: only the parts that are read take memory, and the system can reclaim
    that memory.
    """
    try:
        if file is not None and Path(file).is_file() and Path(file).stat().st_size:
            return _mapped(Path(file))
        content = lzma.decompress(EMBEDDED.read_bytes()) if file is None else Path(file).read_bytes()
    except OSError as error:
        raise UsageError("data", f"cannot read {file}: {error.strerror or error}", "") from error
    if not content:
        raise UsageError("data", f"{file}, which is empty", "a file with text")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _mapped(path: Path) -> Tensor:
    with path.open("rb"):  # unlike torch's, this error says why a file cannot be opened
        return torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)


@lru_cache(maxsize=4)
def read_tokens(file: str | None, vocabulary: int) -> Tensor:
    """Return the text as tokens. A vocabulary of up to *vocabulary* tokens is learnt from the
    training part of the text.
    """
    return tokenizer(file, vocabulary).encode(read_text(file).numpy().tobytes())


def tokenizer(file: str | None, vocabulary: int) -> BpeTokenizer:
    """Return the tokenizer of up to *vocabulary* tokens, learnt from the training part of the text."""
    text = read_text(file).numpy().tobytes()
    return train(text[: len(text) - len(text) // HELD_OUT], vocabulary)


def cut(text: Tensor, context: int, most_held_out: int, unit: str = "bytes") -> tuple[Samples, Samples]:
    """Return (training samples, held-out samples). Inputs have the shape (windows, *context*);
    targets are the inputs shifted by one.

    *unit* names the elements in errors: bytes or tokens. A training window starts at every element
    of the first nine tenths; held-out windows, at most *most_held_out*, lie end to end in the last
    tenth. Windows are views, so the text is in memory only once. Raise UsageError if the text is
    too short for a held-out window.
    """
    border = len(text) - len(text) // HELD_OUT
    if len(text) - border <= context:
        most = max(0, len(text) // HELD_OUT - 1)  # 1 + the context must fit into the last tenth
        expected = f"at most {most}, as a tenth of the text's {len(text)} {unit} is held out"
        raise UsageError("context", repr(context), expected)
    training, held_out = _windows(text[:border], context, 1), _windows(text[border:], context, context)
    return training, Samples(held_out.inputs[:most_held_out], held_out.targets[:most_held_out])


def _windows(text: Tensor, context: int, stride: int) -> Samples:
    return Samples(text[:-1].unfold(0, context, stride), text[1:].unfold(0, context, stride))
