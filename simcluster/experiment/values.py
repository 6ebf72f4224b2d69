"""The error of a timing-only run that reads the value of a tensor: it has none."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from simcluster.errors import NeedsValues
from simcluster.unknown_number import Undecidable

_TORCH = str(Path(torch.__file__).parent)

# The errors that torch raises when a tensor without values is read, materialised, or mixed with a real one.
_SAID_BY_TORCH = re.compile(
    r"meta tensor|meta device|device meta|register_meta|Meta kernel|integer tensors of a single element"
    r"|Tensor\.__format__",
    re.IGNORECASE,
)


def missing_values(error: BaseException) -> NeedsValues | None:
    """Return the error with its remedy if *error* was caused by a value that a timing-only run lacks."""
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
