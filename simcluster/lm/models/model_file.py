"""A model in a file or folder of any format: its architecture, its weights, its tokens.

Weights are read a few rows at a time.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from simcluster.compute import HOST
from simcluster.lm.files.error import ModelFileError, refusing, shown
from simcluster.lm.files.hub_links import open_model_file
from simcluster.lm.files.pieces import FileTensor, read_piece
from simcluster.lm.formats import DEFAULT, Precision
from simcluster.lm.headers.header import MOST_CONTEXT, ModelHeader
from simcluster.lm.models.model_share import ModelShare
from simcluster.lm.models.numbers import numbers_in
from simcluster.lm.models.parameters import LayerSpan
from simcluster.lm.models.quantised_folder import PackedTensor, plain_tensors
from simcluster.lm.models.runnable import check_runnable
from simcluster.lm.models.skeleton import config_of, cut_config, skeleton_of
from simcluster.lm.models.tensor_parts import TensorPart
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.text.chat import Chat
from simcluster.lm.text.tokenizer import LibraryTokens
from simcluster.lm.text.tokens import Tokens

ENDS = ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>",
        "<|return|>", "<|call|>", "<turn|>")  # fmt: skip
"""Names of the marks that end an answer, in models that have them."""


MOST_F16: Final = 65_504
"""The largest number of f16, the smallest of the formats that numbers have."""

FileState: TypeAlias = frozenset[tuple[Path, int, int]]
"""The files of a model, with their sizes and times of change in nanoseconds."""


class ModelFile(ABC):
    """A model at *path*, with *tensors* in files of *folder*.

    No link in the folder is followed, except those of the hub's cache. An error in a file raises
    ModelFileError, at the latest when the faulty part is used.
    """

    shape: ModelShape
    config: Any
    """The settings of the model's modules: those of transformers, or of a run's GPT."""

    def __init__(self, path: Path, name: str, folder: Path, tensors: Mapping[str, FileTensor | PackedTensor]) -> None:
        self.path = path
        self.name = name
        self._folder = folder
        self._tensors = tensors
        self._packed: tuple[str, Callable[[int, int], npt.NDArray[Any]]] | None = None

    @property
    def context(self) -> int:
        """Limit on the tokens of a sequence."""
        return int(self.config.max_position_embeddings)

    def state(self) -> FileState:
        """Return the present state of the model's files. It changes if one is written again."""
        files = {self._folder / one.file for one in self._tensors.values()}
        files |= {*self.path.iterdir()} if self.path.is_dir() else {self.path}
        return frozenset((one, stat.st_size, stat.st_mtime_ns) for one in files if (stat := _stat(one)) is not None)

    @abstractmethod
    def skeleton(self, place: int = 0, count: int = 1) -> nn.Module:
        """Return the model's modules, or shard *place* of *count* of them, on the meta device.

        Raise ValueError if the model cannot be split into *count* shards.
        """

    @abstractmethod
    def parts(self, name: str, config: Any) -> list[TensorPart]:
        """Return the tensors that fill the parameter *name* of a model or shard with *config*."""

    @cached_property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters of the whole model by name, without values."""
        return dict(self.skeleton().named_parameters(remove_duplicate=False))

    def read(self, key: str, first: int, last: int) -> Tensor:
        """Return the rows [*first*, *last*) of the tensor *key*, in f32."""
        place = self._tensors[key]
        with refusing(self._folder / place.file, key, "a whole tensor"), np.errstate(all="ignore"):
            if isinstance(place, FileTensor):
                return torch.from_numpy(self._stored(place, first, last))
            if self._packed is None or self._packed[0] != key:
                self._packed = key, place.reader(self._stored)
            found = torch.from_numpy(self._packed[1](first, last))
        if last == place.shape[0]:
            self._packed = None  # free its memory: no row is read twice
        return found

    def _stored(self, place: FileTensor, first: int, last: int) -> npt.NDArray[Any]:
        """Return the rows [*first*, *last*) of the tensor *place*, in f32 or as packed words."""
        # All rows have the same number of bytes, even in formats with blocks.
        first_byte, last_byte = (place.nbytes * row // place.shape[0] for row in (first, last))
        with self._open(place.file) as file:
            data = read_piece(file, place.begin, place.nbytes, first_byte, last_byte)
        return numbers_in(data, place.kind).reshape(last - first, *place.shape[1:])

    def _check_tensors(self, ignored: str) -> None:
        """Raise ModelFileError for the first tensor that is missing, of a wrong shape, or unknown.

        Unknown tensors that match the regular expression *ignored* are accepted.
        """
        used = set()
        for name, parameter in self.parameters.items():
            for part in self.parts(name, self.config):
                expected = parameter.shape if part.shared else part.place(parameter).shape
                used.add(part.key)
                if (found := self._tensors.get(part.key)) is None:
                    raise ModelFileError(self.path, part.key, "no such tensor", f"one of shape {tuple(expected)}")
                if found.shape != tuple(expected):
                    place = self._folder / found.file
                    raise ModelFileError(place, part.key, f"the shape {found.shape}", f"{tuple(expected)}")
        strange = [key for key in self._tensors if key not in used and not re.search(ignored, key)]
        if strange:
            said = "a tensor that the engine does not compute"
            raise ModelFileError(self.path, strange[0][:60], said, "none of this name")

    def _open(self, file: str) -> BinaryIO:
        return open_model_file(self._folder, file)

    @abstractmethod
    def _tokenizer(self) -> Tokens | None: ...

    @abstractmethod
    def _template(self) -> str | None: ...

    def _named(self) -> dict[str, str]:
        """Return variable of a template -> the mark that it prints, like `bos_token` -> `<s>`."""
        return {}

    @abstractmethod
    def _ends(self) -> Sequence[object]:
        """Return the ids of tokens that end an answer, according to the file."""

    @cached_property
    def tokenizer(self) -> Tokens | None:
        """The tokenizer, or None if the file has none."""
        with refusing(self.path, "tokenizer"):
            return self._tokenizer()

    @cached_property
    def chat(self) -> Chat | None:
        """The chat template, or None if the file has no template or no tokenizer."""
        with refusing(self.path, "chat template"):
            template = self._template()
            if template is None or not isinstance(self.tokenizer, LibraryTokens):
                return None
            return Chat(template, self.tokenizer, self._named())

    @cached_property
    def ends(self) -> frozenset[int]:
        """The ids of the tokens that end an answer."""
        marks = {} if self.tokenizer is None else dict(self.tokenizer.marks)
        if "<|return|>" in marks:
            marks.pop("<|end|>", None)  # in such models it ends only a part of an answer
        found = [one for one in self._ends() if one is not None]
        for one in found:
            if type(one) is not int or not 0 <= one < self.shape.vocabulary:
                raise ModelFileError(self.path, "end of text", shown(one), "a token's id")
        return frozenset([*(one for one in found if isinstance(one, int)), *(marks[n] for n in ENDS if n in marks)])

    def share(
        self, first: int, last: int, precision: Precision = DEFAULT, place: int = 0, count: int = 1,
        device: torch.device = HOST,
    ) -> ModelShare:  # fmt: skip
        """Return shard *place* of *count* of the layers [*first*, *last*), on *device*.

        Only the tensors that it needs are read, a few rows at a time.
        """
        with refusing(self.path, "weights"):
            found = ModelShare(self, LayerSpan(first, last, self.shape.layers, place, count), precision, device)
        self._packed = None  # a shard that lacks the last row has not freed it
        return found


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


class HeaderFile(ModelFile):
    """A model that transformers knows, described by its *header* except for its tokens."""

    def __init__(self, header: ModelHeader, path: Path, name: str, folder: Path) -> None:
        check_runnable(header)
        super().__init__(path, name, folder, plain_tensors(header))
        self._header = header
        self.shape = header.shape
        self.config = config_of(self._settings(), header.facts.file)
        self._check_sizes()
        self._check_tensors(rf"inv_freq|lm_head|^output\.weight$|rope_freqs|\.{self.shape.layers}\.|masked_bias")

    def _check_sizes(self) -> None:
        """Raise ModelFileError if transformers reads other sizes than the header, or a bad window.

        A file may state a size twice, and only the header's sizes are bounded.
        """
        shape = self.shape
        parts = shape.parts
        sizes = {
            "num_hidden_layers": shape.layers, "hidden_size": shape.width, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_size, "vocab_size": shape.vocabulary,
            "max_position_embeddings": shape.context, "num_experts": parts.experts, "num_experts_per_tok": parts.active,
        }  # fmt: skip
        for key, expected in sizes.items():
            if (found := getattr(self.config, key, expected)) != expected:
                raise ModelFileError(self._header.facts.file, key, shown(found), f"{expected}, as other keys say")
        self._header.facts.positive("query_pre_attn_scalar", default=1.0)  # a negative one would give a complex scale
        self._header.facts.positive("swiglu_limit", default=1.0, most=MOST_F16)  # torch refuses it later otherwise
        window = getattr(self.config, "sliding_window", None)
        slides = "sliding_attention" in (getattr(self.config, "layer_types", None) or ["sliding_attention"])
        if slides and window is not None and not 0 < window <= MOST_CONTEXT:
            raise ModelFileError(self._header.facts.file, "sliding_window", shown(window), "a number of tokens")

    @abstractmethod
    def _settings(self) -> Mapping[str, Any]:
        """Return the model's settings by their names in a config.json."""

    def skeleton(self, place: int = 0, count: int = 1) -> nn.Module:
        config = cut_config(self.config, place, count) if count > 1 else self.config
        return skeleton_of(config, self._header.facts.file)
