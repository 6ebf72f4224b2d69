"""The error of a timing-only run in which the value of a tensor is asked for: it has none."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from simcluster.errors import NeedsValues
from simcluster.unknown_number import Undecidable

_TORCH = str(Path(torch.__file__).parent)

# What torch raises where a tensor without values is read, made whole, or mixed with one that has some.
_SAID_BY_TORCH = re.compile(
    r"meta tensor|meta device|device meta|register_meta|Meta kernel|integer tensors of a single element"
    r"|Tensor\.__format__",
    re.IGNORECASE,
)


def missing_values(error: BaseException) -> NeedsValues | None:
    """The error that tells what to do, if *error* came of a value that a timing-only run does not have."""
    by_torch = isinstance(error, (RuntimeError, TypeError)) and _SAID_BY_TORCH.search(str(error))
    if not by_torch and not isinstance(error, Undecidable):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame for frame in frames if not frame.filename.startswith(_TORCH) and "simcluster/unknown" not in _of(frame)
    ]
    where = f"{own[-1].filename}:{own[-1].lineno} ({own[-1].name})" if own else "the algorithm"
    return NeedsValues(where, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _of(frame: traceback.FrameSummary) -> str:
    return frame.filename.replace("\\", "/")
