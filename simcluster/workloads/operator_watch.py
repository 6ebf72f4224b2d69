"""The base of the modes that see every operator that torch runs."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, since True would make torch import its compiler, which takes more than a
        second.
        """
        return False


def tensors_in(values: Any) -> list[Tensor]:
    """Return the tensors among *values*, which may be nested."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
