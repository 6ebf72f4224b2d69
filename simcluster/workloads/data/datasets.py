"""Data sets in their usual forms (tensors, dicts, datasets, loaders), read into memory as
`Samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

from simcluster.errors import UsageError
from simcluster.workloads.data.samples import Samples

Data = (
    Samples | tuple[Tensor, Tensor] | Mapping[str, Tensor] | Sequence[Any] | Dataset[Any] | DataLoader[Any]
    | Iterable[Any]
)  # fmt: skip
"""The forms of a data set: two tensors; a mapping of tensors by name; a list or map-style dataset
of (input, target) pairs or dicts; a DataLoader of such a dataset; or an iterable set of such items.
"""

TARGETS = ("labels", "label", "targets", "target", "y")
"""The names by which a field of a dict is recognised as the targets; the first name that is present
is used.
"""

FORMS = (
    "(inputs, targets), tensors by name, a list, a TensorDataset or a dataset with __len__ and __getitem__, "
    "a DataLoader, or an iterable set that can be read again"
)


def is_iterable_only(data: object) -> bool:
    """Return whether *data*, or the data set of a DataLoader, can only be read in order."""
    data = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(data, (Samples, Mapping, Sequence)):
        return False
    has_numbers = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not has_numbers)


def as_samples(data: Data, name: str = "train", *, own_loss: bool = False) -> Samples:
    """Return *data* as tensors on the CPU.

    Raise UsageError, under the key *name*, if *data* is not a data set or is empty, or if inputs
    and targets differ in number.

    A map-style dataset is read once, item by item, and its items are stacked: it must fit in
    memory, and random transforms are drawn once, not once per pass. If *data* is a DataLoader, only
    its dataset and its *collate_fn* are used; a custom *collate_fn* is called once, with all items.
    *own_loss*: whether the model computes its loss, so that all fields of a dict are inputs.
    """
    samples = _read(data, name, own_loss)
    if any(tensor.dim() == 0 for tensor in samples.tensors) or len({len(tensor) for tensor in samples.tensors}) > 1:
        expected = "as many inputs as targets, counted by their first dimension"
        raise UsageError(name, samples.shapes(), expected)
    if len(samples) == 0:
        raise UsageError(name, "0 samples", "at least one")
    return samples


def of_items(items: Sequence[Any], name: str, *, own_loss: bool = False, what: str = "a list") -> Samples:
    """Stack *items*, which are (input, target) pairs or dicts, and return them as samples. Raise
    UsageError if there are none or they do not stack.

    *what* names their source in errors.
    """
    if not items:
        raise UsageError(name, "0 samples", "at least one")
    return _Items(name, what).samples(items, own_loss)


def _read(data: Any, name: str, own_loss: bool) -> Samples:
    if isinstance(data, Samples):
        return data
    if isinstance(data, DataLoader):
        return _of_loader(data, name, own_loss)
    if isinstance(data, Mapping):
        return _of_fields(data, name, own_loss)
    pair = data.tensors if isinstance(data, TensorDataset) else data
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(part, Tensor) for part in pair):
        return Samples(pair[0].detach(), pair[1].detach())
    if isinstance(pair, tuple):
        found = f"{len(pair)} parts: {_kinds(pair)}"
        raise UsageError(name, found, "two tensors, inputs and targets; or a list of (input, target) pairs")
    if isinstance(pair, type) or not (hasattr(pair, "__len__") and hasattr(pair, "__getitem__")):
        raise UsageError(name, type(pair).__name__, FORMS)
    what = "a list" if isinstance(pair, list) else type(pair).__name__
    return of_items(_items_of(pair, name), name, own_loss=own_loss, what=what)


def _items_of(dataset: Any, name: str) -> list[Any]:
    """Return all items of *dataset*.

    If reading an item raises, raise UsageError with the item's number.
    """
    items = []
    for number in range(len(dataset)):
        try:
            items.append(dataset[number])
        except Exception as error:
            found = f"item {number} of {type(dataset).__name__}, which raises {type(error).__name__}: {error}"
            raise UsageError(name, found, f"an item for each number below {len(dataset)}") from error
    return items


def collate_of(loader: DataLoader[Any], name: str) -> Callable[[list[Any]], Any] | None:
    """Return the *collate_fn* of *loader*, or None for torch's default.

    Raise UsageError for a custom sampler.
    """
    expected = "loader.dataset, or a DataLoader without a sampler: `partition` says which rank has which samples"
    for sampler, usual in ((loader.batch_sampler, BatchSampler), (loader.sampler, (SequentialSampler, RandomSampler))):
        is_iterable = isinstance(loader.dataset, IterableDataset)
        if sampler is not None and not is_iterable and not isinstance(sampler, usual):
            raise UsageError(name, f"a DataLoader with a {type(sampler).__name__}", expected)
    return None if loader.collate_fn in (default_collate, default_convert) else loader.collate_fn


def _of_loader(loader: DataLoader[Any], name: str, own_loss: bool) -> Samples:
    collate = collate_of(loader, name)
    if collate is None:
        return _read(loader.dataset, name, own_loss)
    dataset: Any = loader.dataset
    return collated(collate, _items_of(dataset, name), name, own_loss=own_loss)


def collated(collate: Callable[[list[Any]], Any], items: list[Any], name: str, *, own_loss: bool) -> Samples:
    """Return the samples that *collate* makes of all *items*. Raise UsageError if it returns
    neither a pair of tensors nor a dict of tensors.
    """
    found = collate(items)
    if isinstance(found, Mapping):
        return _of_fields(found, name, own_loss)
    if isinstance(found, (tuple, list)) and len(found) == 2 and isinstance(found[1], Tensor):
        inputs = {**found[0]} if isinstance(found[0], Mapping) else found[0]
        if isinstance(inputs, (Tensor, dict)):
            return Samples(inputs, found[1])
    expected = "a pair of tensors, inputs and targets, or a dict of tensors"
    raise UsageError(name, f"a collate_fn that returns a {type(found).__name__}", expected)


def _of_fields(fields: Mapping[str, Any], name: str, own_loss: bool) -> Samples:
    """Return samples of *fields*, a mapping from names to tensors. If *own_loss*, all fields are
    inputs.
    """
    wrong = [key for key, value in fields.items() if not isinstance(value, Tensor)]
    if wrong or not fields:
        found = f"{', '.join(f'{key}: {type(fields[key]).__name__}' for key in wrong[:3])}" if wrong else "no field"
        raise UsageError(name, found, "tensors by name, with one row per sample")
    tensors = {str(key): value.detach() for key, value in fields.items()}
    field = next((key for key in TARGETS if key in tensors), None)
    if own_loss:
        return Samples(tensors, tensors[field if field is not None else next(iter(tensors))])
    inputs = {key: tensor for key, tensor in tensors.items() if key != field}
    if field is None or not inputs:
        found, expected = f"the fields {', '.join(tensors)}", f"inputs, and targets called {' or '.join(TARGETS)}"
        raise UsageError(name, found, f"{expected}; or loss=None, if the model returns its loss")
    return Samples(inputs, tensors[field])


class _Items:
    """A reader that stacks items. Errors have the key *name*, and call the source of the items
    *what*.
    """

    def __init__(self, name: str, what: str) -> None:
        self._name, self._what = name, what

    def samples(self, items: Sequence[Any], own_loss: bool) -> Samples:
        if isinstance(items[0], Mapping):
            return _of_fields(self._fields(items), self._name, own_loss)
        pairs = [self._pair(number, item) for number, item in enumerate(items)]
        inputs = [first for first, _ in pairs]
        is_named = isinstance(inputs[0], Mapping)
        stacked = self._fields(inputs) if is_named else self._stacked(inputs, "the input")
        return Samples(stacked, self._stacked([target for _, target in pairs], "the target"))

    def _pair(self, number: int, item: Any) -> tuple[Any, Any]:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            parts = f" of {len(item)} parts" if isinstance(item, (tuple, list)) else ""
            raise self._wrong(f"item {number} is a {type(item).__name__}{parts}")
        return item[0], item[1]

    def _fields(self, items: Sequence[Any]) -> dict[str, Tensor]:
        names = list(items[0])
        for number, item in enumerate(items):
            if not isinstance(item, Mapping) or set(item) != set(names):
                has = ", ".join(map(str, item)) if isinstance(item, Mapping) else f"a {type(item).__name__}"
                raise self._wrong(f"item {number} has {has}, and item 0 has {', '.join(map(str, names))}")
        return {str(name): self._stacked([item[name] for item in items], f"{str(name)!r}") for name in names}

    def _stacked(self, values: Sequence[Any], field: str) -> Tensor:
        tensors: list[Tensor] = []
        for number, value in enumerate(values):
            try:
                tensors.append(torch.as_tensor(value))
            except (TypeError, ValueError, RuntimeError) as error:
                why = f"{field} of item {number} is a {type(value).__name__}: {error}"
                raise self._wrong(why) from error
            if tensors[-1].shape != tensors[0].shape:
                shapes = f"{tuple(tensors[-1].shape)}, and that of item 0 has {tuple(tensors[0].shape)}"
                raise self._wrong(f"{field} of item {number} has the shape {shapes}")
        return torch.stack(tensors).detach()

    def _wrong(self, why: str) -> UsageError:
        expected = "(input, target) pairs or dicts of numbers, all of one shape; or a DataLoader whose collate_fn pads"
        return UsageError(self._name, f"{self._what} whose items do not stack ({why})", expected)


def _kinds(parts: Sequence[Any]) -> str:
    """Return the types of the first few *parts*."""
    named = [type(part).__name__ for part in parts[:3]]
    return ", ".join(named) + (", ..." if len(parts) > 3 else "")
