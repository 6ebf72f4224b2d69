"""Tensor-parallel splits of a model into pairs of products (Shoeybi et al. 2019, section 3).

The first product of a pair is split by columns and the second by rows, so a pair needs one sum over
ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simcluster.errors import Problem, UsageError

ELEMENTWISE = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity,
               nn.Dropout)  # fmt: skip
"""The modules that act on each element separately, and so may stand between the two products of a
pair.
"""


@dataclass(frozen=True)
class ParameterCut:
    """The split of the parameter *full* along *dim* into one part per rank.

    *groups* are the lengths of consecutive groups along *dim*; a rank's part has a share of each
    group.
    """

    full: Tensor
    dim: int
    groups: tuple[int, ...]

    def part(self, tensor: Tensor, rank: int, size: int) -> Tensor:
        """Return a copy of *rank*'s part of *tensor*, which has the shape of *full*."""
        return torch.cat(self._views(tensor, rank, size), self.dim)

    def put(self, tensor: Tensor, part: Tensor, rank: int, size: int) -> None:
        """Write the *part* of *rank* into *tensor*."""
        views = self._views(tensor, rank, size)
        pieces = torch.split(part, [view.shape[self.dim] for view in views], self.dim)
        for view, piece in zip(views, pieces, strict=True):
            view.copy_(piece)

    def _views(self, tensor: Tensor, rank: int, size: int) -> list[Tensor]:
        groups = torch.split(tensor, list(self.groups), self.dim)
        return [group.tensor_split(size, self.dim)[rank] for group in groups]


@dataclass(frozen=True)
class SplitLayer:
    """A split layer: y = [x +] sum over ranks of work(before(x)) [+ bias].

    *work* computes one rank's share. *cuts*: name of a parameter in *work* -> the split of the
    layer's parameter from which the caller fills it. Every rank holds the whole of *before* and
    *bias*. *residual*: whether x is added to the sum. *alike*: whether all ranks draw the same numbers in
    *work*, as for dropout of its output: a mask that all terms of a sum have is that of the sum.
    """

    work: nn.Module
    cuts: Mapping[str, ParameterCut]
    before: nn.Module | None = None
    bias: nn.Parameter | None = None
    residual: bool = False
    alike: bool = False


def split_layers(modules: Sequence[nn.Module], size: int) -> list[SplitLayer | nn.Module]:
    """Split the layers of a model for *size* ranks.

    Return the layers; layers that are not split are unchanged.

    A layer may define `tensor_split(size) -> SplitLayer`; two Linears with only elementwise
    functions between them are split automatically. Raise UsageError with all problems if no layer
    can be split, or if *size* does not divide the size of a layer.
    """
    found: list[SplitLayer | nn.Module] = []
    problems: list[Problem] = []
    index = 0
    while index < len(modules):
        module, end = modules[index], _pair_at(modules, index)
        try:
            says = getattr(module, "tensor_split", None)
            if says is not None:
                found.append(says(size))
            elif end is not None:
                found.append(_split_pair(modules[index : end + 1], index, size))
            else:
                found.append(module)
        except UsageError as error:
            problems += error.problems
        index = index + 1 if end is None else end + 1
    if not problems and not any(isinstance(part, SplitLayer) for part in found):
        names = ", ".join(type(module).__name__ for module in modules)
        expected = "two Linears with an elementwise function between, or a layer with a method tensor_split"
        problems.append(Problem("tensor_parallel", f"layers {names}", expected))
    if problems:
        raise UsageError(list(dict.fromkeys(problems)))
    return found


def can_split(modules: Sequence[nn.Module]) -> bool:
    """Return whether `split_layers` finds a layer to split."""
    return any(hasattr(module, "tensor_split") or _pair_at(modules, i) for i, module in enumerate(modules))


def split_alone(module: nn.Module, size: int) -> SplitLayer:
    """Split *module*, such as an expert, for *size* ranks. Raise UsageError unless it is split as one layer."""
    parts = split_layers(list(module) if isinstance(module, nn.Sequential) else [module], size)
    if len(parts) == 1 and isinstance(parts[0], SplitLayer):
        return parts[0]
    raise UsageError("tensor_parallel", f"layer {type(module).__name__}", "one that is split as a whole")


def _pair_at(modules: Sequence[nn.Module], start: int) -> int | None:
    """Return the index of the second Linear of the pair that starts at *start*, or None if no pair
    starts there.
    """
    if isinstance(modules[start], nn.Linear):
        for index in range(start + 1, len(modules)):
            if isinstance(modules[index], nn.Linear):
                return index
            if not _is_elementwise(modules[index]):
                break
    return None


def _is_elementwise(module: nn.Module) -> bool:
    inside = module if isinstance(module, nn.Sequential) else [module]
    return all(isinstance(one, ELEMENTWISE) for one in inside)


def _split_pair(modules: Sequence[nn.Module], index: int, size: int) -> SplitLayer:
    first, second = modules[0], modules[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    inner, dtype = first.out_features, first.weight.dtype
    check_divides(f"{inner} columns of layer {index}", inner, size)
    column = nn.Linear(first.in_features, inner // size, bias=first.bias is not None, dtype=dtype)
    row = nn.Linear(inner // size, second.out_features, bias=False, dtype=dtype)
    cuts = {
        "0.weight": ParameterCut(first.weight, 0, (inner,)),
        f"{len(modules) - 1}.weight": ParameterCut(second.weight, 1, (inner,)),
    }
    if first.bias is not None:
        cuts["0.bias"] = ParameterCut(first.bias, 0, (inner,))
    return SplitLayer(nn.Sequential(column, *modules[1:-1], row), cuts, bias=second.bias)


def check_divides(what: str, count: int, size: int) -> None:
    """Raise UsageError, naming *what*, unless *count* is a multiple of *size*."""
    if count % size:
        raise UsageError("tensor_parallel", what, f"a multiple of the {size} ranks")
