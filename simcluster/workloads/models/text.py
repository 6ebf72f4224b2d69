"""Text as bytes or tokens, from the package or a file, cut into windows in which each element predicts the next."""

from __future__ import annotations

import lzma
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from simcluster.errors import Problem, UsageError
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.models.bpe import BpeTokenizer, train

EMBEDDED = Path(__file__).parent / "data" / "sqlite3.h.xz"

HELD_OUT = 10
"""The last 1/HELD_OUT of a text is held out."""


@lru_cache(maxsize=2)
def read_text(file: str | None = None) -> Tensor:
    """Return the bytes of *file*, or of the package's text, as uint8. Raises UsageError if it cannot be read.

    A regular file is mapped: only what is read of it takes memory, which the system can take back.
    """
    try:
        if file is not None and Path(file).is_file() and Path(file).stat().st_size:
            return _mapped(Path(file))
        content = lzma.decompress(EMBEDDED.read_bytes()) if file is None else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(Problem("data", f"cannot read {file}: {error.strerror or error}", "")) from error
    if not content:
        raise UsageError(Problem("data", f"{file}, which is empty", "a file with text"))
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _mapped(path: Path) -> Tensor:
    with path.open("rb"):  # torch does not say why it cannot
        return torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)


@lru_cache(maxsize=4)
def read_tokens(file: str | None, vocabulary: int) -> Tensor:
    """Return the text in up to *vocabulary* kinds of tokens, learnt from the training part."""
    return tokenizer(file, vocabulary).encode(read_text(file).numpy().tobytes())


def tokenizer(file: str | None, vocabulary: int) -> BpeTokenizer:
    """Return the tokenizer with up to *vocabulary* tokens that the training part of the text teaches."""
    text = read_text(file).numpy().tobytes()
    return train(text[: len(text) - len(text) // HELD_OUT], vocabulary)


def cut(text: Tensor, context: int, most_held_out: int, unit: str = "bytes") -> tuple[Samples, Samples]:
    """Return (training, held out): inputs (windows, *context*), and as targets the bytes that follow, shifted by one.

    *unit* names the elements in errors: bytes or tokens. A training window starts at every element of the first nine
    tenths; held-out windows, *most_held_out* at most, lie end to end in the last tenth. Windows are views, so the text
    is in memory once. Raises UsageError if the text is too short for one window of each.
    """
    border = len(text) - len(text) // HELD_OUT
    if len(text) - border <= context:
        most = max(0, len(text) // HELD_OUT - 1)  # 1 + the context must fit into the last tenth
        expected = f"at most {most}, as a tenth of the text's {len(text)} {unit} is held out"
        raise UsageError(Problem("context", repr(context), expected))
    training, held_out = _windows(text[:border], context, 1), _windows(text[border:], context, context)
    return training, Samples(held_out.inputs[:most_held_out], held_out.targets[:most_held_out])


def _windows(text: Tensor, context: int, stride: int) -> Samples:
    return Samples(text[:-1].unfold(0, context, stride), text[1:].unfold(0, context, stride))
