"""The tensors of a Hugging Face folder, which may be quantised, by their plain names and shapes.

This module needs neither torch nor transformers, so that commands that only plan can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from simcluster.lm.files.error import ModelFileError, refusing
from simcluster.lm.files.pieces import FileTensor
from simcluster.lm.files.safetensors import FLOATS
from simcluster.lm.headers.header import ModelFacts, ModelHeader
from simcluster.lm.models.packed_tensors import Array, Awq, Fp8, Gptq, Mlx, Mxfp4, Packing, Shape

T = TypeVar("T")

READ: Final = "mlx with mode affine, gptq, awq, mxfp4 or fp8; else weights in floating point, or a GGUF file"
GPTQ_LESS: Final = {"gptq": 1, "gptq_v2": 0}
"""Format of GPTQ's files -> the number to add to a stored zero point."""

WHOLE: Final = 2**31
"""A group size that covers any row. In a config.json, it is -1."""


@dataclass(frozen=True)
class PackedTensor:
    """A tensor of *shape* that *packing* stores in *members*, by the endings of their names."""

    shape: Shape
    packing: Packing
    members: Mapping[str, FileTensor]

    @property
    def file(self) -> str:
        return self.members[self.packing.main].file

    def reader(self, stored: Callable[[FileTensor, int, int], Array]) -> Callable[[int, int], Array]:
        """Return a function that reads rows of this tensor; *stored* reads those of its members."""
        whole: dict[str, Array] = {}

        def read(ending: str, first: int = 0, last: int | None = None) -> Array:
            place = self.members[ending]
            if last is not None:
                return stored(place, first, last)
            if ending not in whole:
                whole[ending] = stored(place, 0, place.shape[0])
            return whole[ending]

        return lambda first, last: self.packing.rows(read, self.shape, first, last)


def plain_tensors(header: ModelHeader) -> dict[str, FileTensor | PackedTensor]:
    """Return the tensors of the model with *header*; packed matrices replace their members.

    Raise ModelFileError if the engine does not read the quantisation, or if a tensor is missing or
    of a wrong type or shape.
    """
    if header.is_gguf:
        return dict(header.tensors)
    facts = header.facts
    found: dict[str, FileTensor | PackedTensor] = dict(header.tensors)
    key, settings = facts.first("quantization", "quantization_config")
    if settings is not None:
        packing = _packing(facts, key, settings)
        for name in header.tensors:
            if name.endswith(packing.mark):
                stem = name.removesuffix(packing.mark)
                own = settings.get(stem)
                chosen = packing if not isinstance(own, dict) else _packing(facts, f"{key}.{stem}", own)
                packed = _packed(facts, stem, chosen, header.tensors)
                for ending in packed.members:
                    found.pop(stem + ending)
                found[stem + chosen.plain] = packed
    for name, one in found.items():
        if isinstance(one, FileTensor) and one.kind not in FLOATS:
            said = f"weights of type {one.kind}"
            raise ModelFileError(facts.file.parent / one.file, name[:100], said, ", ".join(FLOATS))
    return found


def _packed(facts: ModelFacts, stem: str, packing: Packing, tensors: Mapping[str, FileTensor]) -> PackedTensor:
    """Return the matrix *stem*.

    Raise ModelFileError if a member is missing or of a wrong type or shape.
    """
    key = stem + packing.main
    folder = facts.file.parent
    if key not in tensors:
        raise ModelFileError(folder, key[:100], "no such tensor", f"one, as {packing.mark[1:]} has")
    with refusing(folder / tensors[key].file, key[:100], "a packed matrix"):
        shape = packing.shape(tensors[key].shape)
        expected = packing.members(shape)
    for ending, (kinds, size) in expected.items():
        one = tensors.get(stem + ending)
        if one is None or one.kind not in kinds or one.shape != size:
            said = "no such tensor" if one is None else f"{one.kind} of the shape {one.shape}"
            raise ModelFileError(folder, (stem + ending)[:100], said, f"{' or '.join(kinds)} of {size}")
    return PackedTensor(shape, packing, {ending: tensors[stem + ending] for ending in expected})


def _packing(facts: ModelFacts, key: str, settings: Any) -> Packing:
    """Return the packing that *settings*, which are at *key*, describe.

    Raise ModelFileError if they are malformed or unsupported.
    """
    if not isinstance(settings, dict):
        raise facts.wrong(key, settings, "a mapping")
    inner = ModelFacts(facts.file, {f"{key}.{name}": value for name, value in settings.items()}, f"{key}.")
    method = settings.get("quant_method", "mlx")
    if method == "mlx" and settings.get("mode", "affine") == "affine":
        return Mlx(_one_of(inner, "bits", (2, 3, 4, 5, 6, 8)), _group(inner, 64))
    if method == "gptq":
        less = GPTQ_LESS[_one_of(inner, "checkpoint_format", GPTQ_LESS, "gptq")]
        return Gptq(_one_of(inner, "bits", (2, 4, 8)), _group(inner, WHOLE), less)
    if method == "awq":
        _one_of(inner, "version", ("gemm", "GEMM"), "gemm")
        _one_of(inner, "bits" if "bits" in settings else "w_bit", (4,))
        return Awq(_group(inner, 128))
    if method == "mxfp4":
        return Mxfp4()
    if method == "fp8":
        sizes = settings.get("weight_block_size")
        if isinstance(sizes, list) and len(sizes) == 2 and all(type(one) is int and one > 0 for one in sizes):
            return Fp8(*sizes)
        raise facts.wrong(f"{key}.weight_block_size", sizes, "rows and columns of a block")
    mode = settings.get("mode")
    raise facts.wrong(key, str(method) if mode is None else f"{method} with mode {mode}", READ)


def _one_of(facts: ModelFacts, name: str, known: Iterable[T], default: T | None = None) -> T:
    """Return the value of *name*, or *default* if it has none.

    Raise ModelFileError if the value is not one of *known*.
    """
    key, found = facts.first(name)
    found = default if found is None else found
    for one in known:
        if type(found) is type(one) and found == one:
            return one
    raise facts.wrong(key, found, " or ".join(map(str, known)))


def _group(facts: ModelFacts, default: int) -> int:
    """Return the number of columns that share a scale, WHOLE for all."""
    if -1 in (found[1] for found in (facts.first("group_size"), facts.first("q_group_size"))):
        return WHOLE
    return facts.count("group_size", "q_group_size", default=default, most=WHOLE)
