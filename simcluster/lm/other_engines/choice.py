"""Choose the engine of a node by its name, and refuse what it cannot do in one sentence."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Final, NamedTuple, cast

import torch

from simcluster.errors import UsageError
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.stage import StageModel
from simcluster.lm.models.gguf_file import GgufFile
from simcluster.lm.models.hugging_face import HuggingFaceFolder
from simcluster.lm.models.model_file import ModelFile

RUNNING: Final = 16
"""Limit on the requests that run at once. llama.cpp has room for 64 sequences in all its versions."""

CACHE_BYTES: Final = 10**9
"""The most cache of an engine that allocates all of it at once, unless a request needs more."""


class OtherEngine(NamedTuple):
    """An engine in *module*, from the *package* whose top module is *top*. It reads *files*."""

    module: str
    package: str
    top: str
    files: type[ModelFile]
    form: str


OTHERS: Final = {
    "llama.cpp": OtherEngine("llama_cpp", "llama-cpp-python", "llama_cpp", GgufFile, "a GGUF file"),
    "mlx": OtherEngine("mlx", "mlx-lm", "mlx_lm", HuggingFaceFolder, "a folder with a config.json"),
}
"""Name -> engine, for those that are not this project's own."""


def check_engine(engine: str, weights: str | None, file: ModelFile | None, is_here: bool) -> None:
    """Raise UsageError if *engine* cannot compute the model in *file* with *weights*.

    *file* is None if only times are wanted. Without *is_here*, no node is on this machine, so its
    packages do not matter.
    """
    if file is None or engine not in OTHERS:
        return
    other = OTHERS[engine]
    if weights is not None:
        raise UsageError("--weights", repr(weights), f"none: {engine} keeps the format of the file")
    if not isinstance(file, other.files):
        raise UsageError("--model", f"{file.name}, of another form", f"{other.form}, which {engine} reads")
    if is_here:
        _need(engine)


def _need(engine: str) -> None:
    other = OTHERS[engine]
    if sys.modules.get(other.top) is None and find_spec(other.top) is None:
        expected = f"it to be installed: pip install {other.package}"
        raise UsageError("--engine", f"{engine} without the package {other.package}", expected)


def other_model(engine: str, file: ModelFile, limits: EngineLimits, device: torch.device) -> StageModel:
    """Load and return the whole model in *file* with *engine*. Raise UsageError without its package."""
    _need(engine)
    module = importlib.import_module(f"{__package__}.{OTHERS[engine].module}")
    return cast("StageModel", module.load(file, limits, device))
