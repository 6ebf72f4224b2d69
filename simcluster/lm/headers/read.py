"""Read the header of a model for every command: from a preset's name, a file, or a folder of Hugging Face's.

The files may come from anywhere: no tensor is read, and every size is bounded before anything is allocated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from simcluster.errors import Problem, UsageError, nearest
from simcluster.lm.files.error import ModelFileError, refusing, shown
from simcluster.lm.files.pieces import MOST_CONFIG, FileTensor, check_inside, read_mapping
from simcluster.lm.files.safetensors import ITEM_BYTES, read_entries
from simcluster.lm.headers.config import shape_of_config
from simcluster.lm.headers.header import ModelFacts, ModelHeader
from simcluster.lm.headers.of_gguf import gguf_header, parts_of
from simcluster.lm.headers.sums import measured
from simcluster.lm.plan.shape import PRESETS, ModelShape
from simcluster.paths.inside import listed, open_file

CONFIG, INDEX, SUFFIX = "config.json", "model.safetensors.index.json", ".safetensors"
MOST_FILES, MOST_INDEX = 1_000, 64 * 2**20
"""Limits on the files of weights, and the bytes of their index."""

RUN: Final = "config.yaml"


def shape_of(model: str) -> ModelShape:
    """Return the shape of a preset, or of the model at the path *model*. Raise UsageError."""
    return PRESETS[model] if model in PRESETS else header_of(model).shape


def header_of(model: str) -> ModelHeader:
    """Return the header of the model at the path *model*. Raise UsageError."""
    path = Path(model)
    if os.path.isdir(model) and os.path.isfile(path / CONFIG):
        return folder_header(path)
    if os.path.isdir(model):
        expected = f"a folder with {CONFIG}; sizes of a run's model are in its {RUN}"
        raise UsageError(Problem("--model", f"{shown(model)}, a directory", expected))
    if not os.path.isfile(model):
        expected = f"a path to a config.json, .safetensors or .gguf, or a preset: {nearest(model, PRESETS)}"
        raise UsageError(Problem("--model", f"{shown(model)}: no such file and no such name", expected))
    if path.suffix == ".gguf":
        return gguf_header(path)
    if path.suffix == SUFFIX:
        return folder_header(path.parent, path.name)
    if path.name.endswith(INDEX[-11:]):
        return folder_header(path.parent)
    if path.suffix == ".json":
        with refusing(path, "file", "a JSON mapping"), path.open("rb") as file:  # this one may be a link
            facts = ModelFacts(path, read_mapping(file))
        return ModelHeader(shape_of_config(facts, path.resolve().parent.name), facts, {}, is_gguf=False)
    raise UsageError(Problem("--model", shown(path.name), "a name that ends in .json, .safetensors or .gguf"))


def folder_header(folder: Path, file: str | None = None) -> ModelHeader:
    """Return the header of the model in *folder*: of its config.json, and of *file* or of all its weights, if any.

    No link in the folder is followed. Raises ModelFileError.
    """
    facts = ModelFacts(folder / CONFIG, mapping_in(folder, CONFIG))
    shape = shape_of_config(facts, folder.resolve().name)
    tensors = tensors_of(folder, files_of(folder, file))
    if tensors:
        shape = measured(shape, tensors, folder)
    return ModelHeader(shape, facts, tensors, is_gguf=False)


def files_of(folder: Path, file: str | None = None) -> list[str]:
    """Return the names of the files of weights in *folder*: all that belong to *file*, or those of its index."""
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
        parts_of(folder / name)
    return found


def tensors_of(folder: Path, names: Iterable[str]) -> dict[str, FileTensor]:
    """Return the tensors in the files *names* of *folder*, each whole. Raise ModelFileError for one that is twice."""
    tensors: dict[str, FileTensor] = {}
    for name in names:
        with refusing(folder / name, "file", "a safetensors file"), open_file(folder, name) as file:
            entries, length = read_entries(file, name), os.fstat(file.fileno()).st_size
        for key, one in entries.items():
            if key in tensors:
                raise ModelFileError(folder / name, key[:60], f"a second one, after {tensors[key].file}", "one")
            with refusing(folder / name, key[:60], "a whole tensor"):
                check_inside(length, one.begin, one.nbytes)
            if one.kind in ITEM_BYTES and one.nbytes != ITEM_BYTES[one.kind] * one.count:
                raise ModelFileError(folder / name, key[:60], f"{one.nbytes:,} bytes", f"those of {one.shape}")
        tensors |= entries
    return tensors


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in *folder*. Raise ModelFileError."""
    with refusing(folder, "folder", "one that can be listed"):
        return listed(folder)


def mapping_in(folder: Path, name: str, most: int = MOST_CONFIG) -> dict[str, Any]:
    """Return the mapping in the JSON file *name*, of at most *most* bytes, of *folder*. Raise ModelFileError."""
    with refusing(folder / name, "file", "a JSON mapping"), open_file(folder, name) as file:
        return read_mapping(file, most)
