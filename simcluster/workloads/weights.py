"""The weights of a replica, and the optimizer that updates them.

Weights that have not been needed yet may take no memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.compute import HOST
from simcluster.process.memory import note_freed
from simcluster.workloads.initial.deferred import DeferredModel, allocate, is_present
from simcluster.workloads.initial.given_weights import GivenWeights
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.progress.progress import Progress
from simcluster.workloads.saved import load_model, load_optimizer, untrained_state
from simcluster.workloads.schedules import take_over
from simcluster.workloads.steps import trainable_of
from simcluster.workloads.weights_file import WeightsFile, weights_file


class Weights(Progress):
    """The part of a Replica that holds its model and optimizer.

    A deferred model gets its parameters one by one, when they are needed.
    """

    computes = True
    """Whether the replica's tensors have values."""

    is_parted = False
    """Whether this rank trains only a part of the model; then only rank 0 gets the whole model."""

    may_stand = False
    """Whether this rank may come to represent the run, so that it must always have weights."""

    names: list[str]
    _rank: int
    _gathered: WeightsFile | None = None
    """The whole model as it was last gathered here, if this rank holds only a part of it."""

    _dropped: tuple[str | None, list[tuple[int, ...]]] | None = None
    """The hash and the strides of dropped weights, until new weights arrive."""

    def _hold(
        self, model: nn.Module, deferred: DeferredModel | None, make_optimizer: MakeOptimizer, device: torch.device
    ) -> None:
        self._model = model.train()
        self._deferred = deferred
        self._make_optimizer = make_optimizer
        self.device = device
        if device != HOST and deferred is None:
            self._model.to(device)
        trainable = trainable_of(self._model)
        self.names = [name for name, _ in trainable]
        self._trainable = [parameter for _, parameter in trainable]
        self._live: list[Tensor] = [parameter.detach() for parameter in self._trainable]
        self._stepper: torch.optim.Optimizer | None = None
        self._saved_optimizer: dict[str, Any] | None = None
        self._handed_in: Digest | None = None
        self._coming: WeightsFile | None = None

    @property
    def parameters(self) -> list[Tensor]:
        """All live weights.

        Reading this property brings all weights into memory. Weights that this rank does not hold
        have the values that were gathered last.
        """
        if self._dropped is not None:
            self._give_memory(self._dropped[1])
        if self._deferred is not None:
            for place, parameter in enumerate(self._trainable):
                if self._gathered is not None and not is_present(parameter):
                    allocate(parameter)
                    self._gathered.read_into(place, parameter)
            self._deferred.fill(self._trainable)
        return self._live

    loads = 0
    """The number of calls of `load`."""

    def live(self) -> list[Tensor]:
        """Return the weights as they are in memory, without restoring those that are dropped or
        absent.
        """
        return self._live

    def changes(self) -> int:
        """Return a number that grows with every in-place change of the weights."""
        return sum(parameter._version for parameter in self._trainable)

    @cached_property
    def shapes(self) -> list[Tensor]:
        """Tensors without values, with the shapes and dtypes of *parameters*."""
        return [torch.empty(p.shape, dtype=p.dtype, device="meta") for p in self._trainable]

    def initial(self, places: Sequence[int]) -> list[Tensor]:
        """Return the weights at indices *places*.

        If the model is deferred, absent weights are returned as new tensors with their initial
        values.
        """
        if self._deferred is None:
            return [self._live[place] for place in places]
        return [self._deferred.value(self._trainable[place]).to(self.device) for place in places]

    def free(self, places: Sequence[int]) -> None:
        """Free the memory of the weights at indices *places* if the model is held in parts;
        otherwise do nothing.
        """
        if self._deferred is not None:
            self._deferred.drop([self._trainable[place] for place in places])

    def drop_weights(self) -> None:
        """Free the weights of a rank that gets new weights before it trains again. Until then all
        weights are NaN.

        Buffers and the optimizer's state stay. Weights also stay if they share memory, if the model
        is held in parts (see `free`), or if this rank `may_stand` for the run.
        """
        memory = {live.untyped_storage().data_ptr(): live.untyped_storage().nbytes() for live in self._live}
        is_apart = len(memory) == len(self._live) and sum(memory.values()) == sum(live.nbytes for live in self._live)
        if self._deferred is None and self._dropped is None and is_apart and not self.may_stand:
            self._dropped = self.weights_sha256(), [live.stride() for live in self._live]
            for place, live in enumerate(self._live):
                self._replace(place, live.new_full((), torch.nan).expand(live.shape))
            note_freed(sum(memory.values()))

    def _give_memory(self, strides: Sequence[tuple[int, ...]]) -> None:
        self._dropped = None
        for place, live in enumerate(self._live):
            self._replace(place, live.new_empty_strided(live.shape, strides[place]).fill_(torch.nan))

    def _replace(self, place: int, values: Tensor) -> None:
        self._trainable[place].data = self._live[place].data = values
        torch.autograd.graph.increment_version(self._trainable[place])

    @property
    def is_in_parts(self) -> bool:
        """Whether the model is held in parts, so that only weights in use take memory."""
        return self._deferred is not None

    def put(self, weights: Mapping[int, Tensor]) -> None:
        """Take over *weights*, keyed by index in *parameters*, of a model that is gathered part by
        part.

        A rank whose model is held in parts does not keep the weights in memory: rank 0 writes them
        to a file, and any other rank only hashes them.
        """
        if self._deferred is None:
            for place, given in weights.items():
                if given.data_ptr() != self._live[place].data_ptr():
                    self._live[place].copy_(given)
            return
        self.is_parted = True
        if self._rank != 0:
            self._handed_in = self._handed_in or Digest(self.names)
            self._handed_in.add(weights)
            return
        self._coming = self._coming or WeightsFile(self.names, self.shapes, untrained_state(self._model))
        self._coming.put(weights)
        if self._coming.is_complete:
            self._gathered, self._coming = self._coming, None

    def weights_file(self) -> WeightsFile | None:
        """Return a file with all weights, and with the frozen parameters and buffers of this rank;
        None if the file format lacks a dtype.
        """
        others = untrained_state(self._model)
        if self._gathered is None:
            return weights_file(self.names, self.parameters, others)
        self._gathered.put(dict(enumerate(others.values(), len(self.names))))
        return self._gathered

    def weights_sha256(self) -> str | None:
        """Return the hash of the weights, even if they have been dropped; None if they have no
        values.

        See `weights_sha256`.
        """
        if self._dropped is not None:
            return self._dropped[0]
        if self._handed_in is not None and self._handed_in.is_complete:
            return self._handed_in.hexdigest()
        if self._gathered is not None:
            return weights_sha256(self.names, self._gathered.tensors())
        return weights_sha256(self.names, (self.initial([place])[0] for place in range(len(self.names))))

    def begin_with(self, given: GivenWeights) -> None:
        """Begin with the weights *given*, in a model that is held in parts."""
        assert self._deferred is not None
        places = {name: place for place, name in enumerate(self.names)}
        file = WeightsFile(self.names, self.shapes)
        for name, tensor in given.tensors(places):
            file.put({places[name]: tensor.to(self._trainable[places[name]].dtype)})
        self._deferred.begin_with(file, dict(enumerate(self._trainable)))
        known = self._model.state_dict().items()
        rest = {name: value for name, value in known if name not in places and is_present(value)}
        load_model(self._model, dict(given.tensors(rest)))

    def _load_saved(self, model: Mapping[str, Tensor], optimizer: dict[str, Any]) -> None:
        """Load *model* and *optimizer*, which `model_state` and `optimizer_state` returned.

        If the model is held in parts, weights wait in a file until they are needed. The optimizer's
        state waits until the first optimizer is made, which takes the state of its parameters; the
        rest is dropped.
        """
        if self._deferred is None:
            load_model(self._model, model)
            load_optimizer(self._optimizer, dict(zip(self.names, self._trainable, strict=True)), optimizer)
            return
        saved = {place: model[name] for place, name in enumerate(self.names) if name in model}
        some = {place: self._trainable[place] for place in saved}
        check_shapes("saved weights", [self.names[place] for place in saved], list(some.values()), list(saved.values()))
        file = WeightsFile(self.names, self.shapes)
        file.put({place: value.to(some[place].dtype) for place, value in saved.items()})
        self._deferred.begin_with(file, some)
        load_model(self._model, {name: value for name, value in model.items() if name not in self.names})
        self._stepper, self._saved_optimizer = None, optimizer

    def _optimizer_of(self, places: Sequence[int]) -> torch.optim.Optimizer:
        """Return the optimizer. If the model is held in parts, make one for only the parameters at
        indices *places*, unless there is one already.
        """
        if self._deferred is None:
            return self._optimizer
        if not places:  # any optimizer will do, since only its settings are read
            return self._stepper or self._make_optimizer([nn.Parameter(torch.zeros(1, device=self.device))])
        self._deferred.fill(self._trainable[place] for place in places)
        if self._stepper is None:
            self._stepper = self._made_optimizer(places)
        return self._stepper

    @property
    def _optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of all parameters."""
        before = self._stepper
        known = [] if before is None else [p for group in before.param_groups for p in group["params"]]
        if before is None or len(known) < len(self._trainable):
            _ = self.parameters
            self._stepper = self._made_optimizer(range(len(self._trainable)))
            if before is not None:
                take_over(self._stepper, before)
        assert self._stepper is not None
        return self._stepper

    def _made_optimizer(self, places: Sequence[int]) -> torch.optim.Optimizer:
        """Return a new optimizer of the parameters at indices *places*, and load the saved state
        into it if one is waiting.
        """
        optimizer = self._make_optimizer([self._trainable[place] for place in places])
        if self._saved_optimizer is not None:
            some = {self.names[place]: self._trainable[place] for place in places}
            load_optimizer(optimizer, some, self._saved_optimizer)
            self._saved_optimizer = None
        return optimizer


class Digest:
    """A hash of weights that arrive in any order.

    Each tensor is kept only until all tensors before it have arrived.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._next = names, 0
        self._waiting: dict[int, Tensor] = {}
        self._digest = hashlib.sha256()

    @property
    def is_complete(self) -> bool:
        return self._next == len(self._names)

    def add(self, weights: Mapping[int, Tensor]) -> None:
        """Add *weights*, keyed by index.

        If all weights had arrived before, begin a new hash.
        """
        if self.is_complete:
            self._next, self._digest = 0, hashlib.sha256()
        self._waiting.update(weights)
        while self._next in self._waiting:
            _add(self._digest, self._names[self._next], self._waiting.pop(self._next))
            self._next += 1

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def weights_sha256(names: Sequence[str], parameters: Iterable[Tensor]) -> str:
    """Return a hash of names, dtypes, shapes and bytes, in order. Hashes are equal only for bitwise
    equal weights.
    """
    digest = hashlib.sha256()
    for name, parameter in zip(names, parameters, strict=True):
        _add(digest, name, parameter)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, parameter: Tensor) -> None:
    digest.update(f"{name}\x00{parameter.dtype}\x00{list(parameter.shape)}\n".encode())
    digest.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def check_shapes(what: str, names: Sequence[str], expected: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Raise ValueError unless *given* matches *expected* in number and shapes. Errors call the
    tensors *what*.
    """
    if len(given) != len(expected):
        raise ValueError(f"{len(given)} {what}, but the model has {len(expected)} parameters")
    for name, mine, other in zip(names, expected, given, strict=True):
        if mine.shape != other.shape:
            raise ValueError(f"{what}: {name} has shape {tuple(mine.shape)}, got {tuple(other.shape)}")
