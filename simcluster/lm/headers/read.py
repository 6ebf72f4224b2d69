"""Read the header of a model from a preset's name, a file, or a Hugging Face folder.

The files may come from anywhere: no tensor is read, and every size is checked before anything is
allocated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simcluster.errors import UsageError
from simcluster.lm.files.error import ModelFileError, refusing, shown
from simcluster.lm.files.hub_links import folder_title, open_model_file
from simcluster.lm.files.pieces import MOST_CONFIG, FileTensor, check_apart, check_inside, read_mapping
from simcluster.lm.files.safetensors import ITEM_BYTES, read_entries
from simcluster.lm.headers.config import shape_of_config
from simcluster.lm.headers.header import ModelFacts, ModelHeader
from simcluster.lm.headers.local_models import OLLAMA_BLOB, local_path
from simcluster.lm.headers.of_gguf import gguf_header, parts_of
from simcluster.lm.headers.quantised import densities
from simcluster.lm.headers.sums import measured
from simcluster.lm.plan.shape import PRESETS, ModelShape
from simcluster.paths.inside import listed

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
MOST_FILES, MOST_INDEX = 1_000, 64 * 2**20
"""Limits on the number of weight files, and on the bytes of their index."""

RUN: Final = "config.yaml"

PICKLED: Final = (".bin", ".pt", ".pth", ".ckpt")
"""Suffixes of weights that are not read, because they may contain code that runs on opening."""

CONVERT: Final = "convert other weights, which may contain code, to safetensors with save_pretrained of transformers"


def shape_of(model: str) -> ModelShape:
    """Return the shape of the preset *model*, or of the model that `header_of` finds.

    Raise UsageError if there is none, or if it is malformed or unsupported.
    """
    return PRESETS[model] if model in PRESETS else header_of(model).shape


def header_of(model: str) -> ModelHeader:
    """Return the header of the model at the path *model*, or of the local model of this name.

    Raise UsageError if there is none, or if it is malformed or unsupported.
    """
    expected = f"a path to a config.json, .safetensors or .gguf, a preset ({', '.join(PRESETS)})"
    model = local_path(model, "--model", PRESETS, expected)
    path = Path(model)
    if os.path.isdir(model) and os.path.isfile(path / CONFIG):
        return folder_header(path)
    if os.path.isdir(model):
        expected = f"a folder with {CONFIG}; sizes of a run's model are in its {RUN}"
        raise UsageError("--model", f"{shown(model)}, a directory", expected)
    if not os.path.isfile(model):
        raise UsageError("--model", shown(model), "a folder or a regular file")
    if path.suffix == ".gguf" or path.name.startswith(OLLAMA_BLOB):
        return gguf_header(path)
    if path.suffix == SUFFIX:
        return folder_header(path.parent, path.name)
    if path.name.endswith(INDEX[-11:]):  # the ending .index.json
        return folder_header(path.parent)
    if path.suffix == ".json":
        with (
            refusing(path, "file", "a JSON mapping"),
            path.open("rb") as file,
        ):  # unlike in a folder, a link is followed
            facts = ModelFacts(path, read_mapping(file))
        shape = shape_of_config(facts, path.resolve().parent.name)
        return ModelHeader(replace(shape, **densities(facts)), facts, {}, is_gguf=False)
    expected = "a name that ends in .json, .safetensors or .gguf"
    raise UsageError("--model", shown(path.name), f"{expected}; {CONVERT}" if path.suffix in PICKLED else expected)


def folder_header(folder: Path, file: str | None = None) -> ModelHeader:
    """Return the header of the model in *folder*, from its config.json and any tensors.

    If *file* is given, only this file and the other parts of its model are read. No link in the
    folder is followed, except from a snapshot of the hub's cache to its blobs. Raise ModelFileError
    if a file is missing, malformed or unsupported.
    """
    facts = ModelFacts(folder / CONFIG, mapping_in(folder, CONFIG))
    shape = shape_of_config(facts, folder_title(folder))
    tensors = tensors_of(folder, files_of(folder, file))
    shape = measured(shape, tensors, folder) if tensors else replace(shape, **densities(facts))
    return ModelHeader(shape, facts, tensors, is_gguf=False)


def files_of(folder: Path, file: str | None = None) -> list[str]:
    """Return the names of the weight files in *folder*: only those of *file*'s model, or all.

    Raise ModelFileError if one of them is missing, or if there are more than MOST_FILES.
    """
    if file is not None:
        return [part.name for part in parts_of(folder / file)]
    names = names_in(folder)
    if INDEX in names:
        with refusing(folder / INDEX, "weight_map"):
            found = sorted(set(map(str, mapping_in(folder, INDEX, MOST_INDEX)["weight_map"].values())))
        if missing := [name for name in found if name not in names]:
            raise ModelFileError(folder, "weights", f"no {missing[0][:60]}", f"all {len(found)} files of {INDEX}")
    else:
        found = [name for name in names if name.endswith(SUFFIX)]
        found = ["model.safetensors"] if "model.safetensors" in found else found
    if len(found) > MOST_FILES:
        raise ModelFileError(folder, "weights", f"{len(found)} safetensors files", f"at most {MOST_FILES}")
    for name in found:
        parts_of(folder / name)  # raises if a part is missing
    return found


def tensors_of(folder: Path, names: Iterable[str]) -> dict[str, FileTensor]:
    """Return the tensors in the files *names* of *folder*, by name.

    Raise ModelFileError if a file is malformed, or if a tensor is incomplete, occurs twice, or
    shares bytes with another.
    """
    tensors: dict[str, FileTensor] = {}
    for name in names:
        with refusing(folder / name, "file", "a safetensors file"), open_model_file(folder, name) as file:
            entries = read_entries(file, name)
            length = os.fstat(file.fileno()).st_size
        for key, one in entries.items():
            if key in tensors:
                raise ModelFileError(folder / name, key[:60], f"a second one, after {tensors[key].file}", "one")
            with refusing(folder / name, key[:60], "a whole tensor"):
                check_inside(length, one.begin, one.nbytes)
            if one.kind in ITEM_BYTES and one.nbytes != ITEM_BYTES[one.kind] * one.count:
                raise ModelFileError(folder / name, key[:60], f"{one.nbytes:,} bytes", f"those of {one.shape}")
        with refusing(folder / name, "file", "tensors that share no bytes"):
            check_apart(entries.values())
        tensors |= entries
    return tensors


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in *folder*. Raise ModelFileError if it cannot be listed."""
    with refusing(folder, "folder", "one that can be listed"):
        return listed(folder)


def mapping_in(folder: Path, name: str, most: int = MOST_CONFIG) -> dict[str, Any]:
    """Return the mapping in the JSON file *name* of *folder*.

    Raise ModelFileError if the file is missing, malformed, or larger than *most* bytes.
    """
    with refusing(folder / name, "file", "a JSON mapping"), open_model_file(folder, name) as file:
        return read_mapping(file, most)
