"""Initial weights from a safetensors file, for fine-tuning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from simcluster.errors import Problem, UsageError, raise_all

KEY = "workload.weights"


class GivenWeights:
    """The safetensors file at *path*. It has every trainable parameter of a model, and may have its
    frozen parameters and buffers.

    Tensors of another floating-point type are converted. They are read one at a time.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def digest(self) -> str:
        """Return the hash of the file, for comparisons between processes."""
        try:
            with open(self._path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise self._unreadable(error) from error

    def check(self, model: nn.Module) -> None:
        """Raise UsageError with every tensor of the file that does not fit *model*, and every
        parameter that the file lacks.
        """
        known, problems = model.state_dict(), []
        needed = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        with self._open() as file:
            found = list(file.keys())
            problems += [_lacks(name) for name in needed if name not in found]
            for name in found:
                if name not in known:
                    problems.append(Problem(f"{KEY}, {name}", "a tensor that the model lacks", "only the model's"))
                    continue
                part = file.get_slice(name)
                shape, mine = list(part.get_shape()), list(known[name].shape)
                if shape != mine:
                    problems.append(Problem(f"{KEY}, {name}", f"shape {shape}", f"{mine}, that of the model"))
                elif known[name].is_floating_point() and not part.get_dtype().startswith(("F", "BF")):
                    problems.append(Problem(f"{KEY}, {name}", part.get_dtype(), "floating-point numbers"))
        raise_all(problems)

    def load_into(self, model: nn.Module) -> None:
        """Overwrite the weights of *model*. Raise UsageError if the file does not fit it."""
        self.check(model)
        mine = model.state_dict()
        with torch.no_grad():
            for name, tensor in self.tensors(mine):
                mine[name].copy_(tensor)

    def tensors(self, names: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for each tensor of the file that is in *names*."""
        with self._open() as file:
            for name in file.keys():  # noqa: SIM118 (the file is no mapping)
                if name in names:
                    yield name, file.get_tensor(name)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            opened = safe_open(self._path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise self._unreadable(error) from error
        with opened as file:
            yield file

    def _unreadable(self, error: Exception) -> UsageError:
        return UsageError(KEY, f"{self._path} ({error})", "a safetensors file, or the directory of a run that ended")


def _lacks(name: str) -> Problem:
    return Problem(f"{KEY}, {name}", "no such tensor in the file", "every trainable parameter of the model")
