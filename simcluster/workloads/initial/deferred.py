"""A model with parameters that take no memory until they are needed.

Each parameter then gets the same bits as if the whole model had been made at once.

An absent parameter is a tensor with a shape and a storage of no bytes. Reading it may crash the
process, so `RefusingWatch` is entered where a model's own code could read absent parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import swap_tensors

from simcluster.compute import HOST
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.tape import StoragePlace, Tape, Unrecordable
from simcluster.workloads.operator_watch import OperatorWatch, tensors_in
from simcluster.workloads.weights_file import WeightsFile


class DeferredModel:
    """A *model* that *make_model* makes under a tape. Its trainable parameters are absent; all its
    other tensors are present on *device*.

    *alike*: whether random initial values need only have the right distribution, which is much
    faster. See `Tape`. Raise Unrecordable if the tape cannot replay how the model is made.
    """

    def __init__(
        self, make_model: Callable[[], nn.Module], device: torch.device = HOST, *, alike: bool = False
    ) -> None:
        self._tape, self._device = Tape(alike=alike), device
        self._places: dict[int, StoragePlace] = {}
        self._saved: dict[int, tuple[WeightsFile, int]] = {}
        with borrowed(0, others=True):
            try:
                with self._tape:
                    self.model = make_model()
                self._hollow_out()
            except Exception as error:
                raise Unrecordable(f"{type(error).__name__}: {error}") from error

    def value(self, parameter: Tensor) -> Tensor:
        """Return *parameter*, detached; if it is absent, return a new tensor with the parameter's
        initial values.
        """
        if id(parameter) not in self._places or is_present(parameter):
            return parameter.detach()
        if id(parameter) in self._saved:
            file, place = self._saved[id(parameter)]
            value = torch.empty(parameter.shape, dtype=parameter.dtype)
            file.read_into(place, value)
            return value
        with borrowed(0):
            return self._tape.value(self._places[id(parameter)])

    def begin_with(self, file: WeightsFile, parameters: Mapping[int, Tensor]) -> None:
        """Make the values in *file* the initial values of *parameters*, which are keyed by their
        index in the file.
        """
        self._saved |= {id(parameter): (file, place) for place, parameter in parameters.items()}
        self.drop(parameters.values())

    def fill(self, parameters: Iterable[Tensor]) -> None:
        """Allocate those of *parameters* that are absent, and give them their initial values."""
        for parameter in parameters:
            if not is_present(parameter):
                initial = self.value(parameter)
                allocate(parameter)
                parameter.detach().copy_(initial)

    def drop(self, parameters: Iterable[Tensor]) -> None:
        """Free the memory of those of *parameters* that are trainable and whose initial values can
        be made again.
        """
        for parameter in parameters:
            if id(parameter) in self._places and parameter.requires_grad:
                release(parameter)

    def _hollow_out(self) -> None:
        parameters = [parameter for parameter in self.model.parameters() if parameter.is_meta]
        known = {id(parameter) for parameter in parameters}
        others = [tensor for tensor in self._tape.alive if id(tensor) not in known]
        others += [buffer for buffer in self.model.buffers() if buffer.is_meta]
        others = list({id(tensor): tensor for tensor in others}.values())
        self._tape.forget()  # torch refuses to swap a tensor with a weak reference to it
        places = [self._tape.place(parameter) for parameter in parameters]
        if len({place.storage for place in places}) < len(places):
            raise Unrecordable("parameters that share memory")
        for tensor in others:
            if isinstance(tensor, nn.Parameter):
                raise Unrecordable("a parameter that the model does not list")
            value = self._tape.value(self._tape.place(tensor)).to(self._device)
            swap_tensors(tensor, value.requires_grad_(tensor.requires_grad))  # type: ignore[no-untyped-call]
        for parameter, place in zip(parameters, places, strict=True):
            if place.offset or not parameter.is_contiguous():
                raise Unrecordable("a parameter that is a part of a tensor")
            empty = torch.empty(place.size, dtype=place.dtype, device=self._device)
            hollow = nn.Parameter(empty, parameter.requires_grad)
            release(hollow)
            swap_tensors(parameter, hollow)  # type: ignore[no-untyped-call]
            self._places[id(parameter)] = place
        self.fill(parameter for parameter in parameters if not parameter.requires_grad)


class RefusingWatch(OperatorWatch):  # type: ignore[no-untyped-call]
    """A watch that raises Unrecordable for an operator that would read an absent tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and not all(map(is_present, tensors_in((args, kwargs)))):
            raise Unrecordable(f"{func} of a parameter that is not there")
        return func(*args, **(kwargs or {}))


class FillingWatch(OperatorWatch):
    """A watch that fills the absent parameters of *deferred* before an operator takes them.

    While they take more than *most_bytes*, it frees parameters that the operator does not take,
    oldest first.
    """

    def __init__(self, deferred: DeferredModel, most_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._deferred, self._most_bytes = deferred, most_bytes
        self._owner = {parameter.untyped_storage()._cdata: parameter for parameter in deferred.model.parameters()}
        self._filled: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = {tensor.untyped_storage()._cdata for tensor in tensors_in((args, kwargs))}
        missing = {key: self._owner[key] for key in taken if key in self._owner and not is_present(self._owner[key])}
        self._deferred.fill(missing.values())
        self._filled |= missing
        for key in [key for key in self._filled if key not in taken]:
            if sum(parameter.nbytes for parameter in self._filled.values()) <= self._most_bytes:
                break
            self._deferred.drop([self._filled.pop(key)])
        return func(*args, **(kwargs or {}))


def is_present(tensor: Tensor) -> bool:
    """Return whether *tensor* has memory for its values."""
    return not tensor.numel() or tensor.is_meta or tensor.untyped_storage().nbytes() > 0


def allocate(parameter: Tensor) -> None:
    """Allocate the memory of *parameter* if it is absent; its values are then undefined."""
    if not is_present(parameter):
        parameter.untyped_storage().resize_(parameter.nbytes)


def release(parameter: Tensor) -> None:
    """Free the memory of *parameter*."""
    parameter.untyped_storage().resize_(0)
