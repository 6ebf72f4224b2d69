"""The base of modes that are called with each operator of torch."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: excluding torch's compiler would first import it, which takes more than a second."""
        return False
