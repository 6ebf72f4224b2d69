"""Regular topologies of any size, parsed like a file: `star(8)`, `ring(4, bandwidth="10 Gbps")`.

Their `document` can be written to a file. Arguments are those of simcluster.topology.presets.generators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from simcluster.topology.model.model import Topology
from simcluster.topology.presets import generators
from simcluster.topology.read.read import loads

P = ParamSpec("P")


def _read(make: Callable[P, dict[str, Any]]) -> Callable[P, Topology]:
    @wraps(make)
    def read(*args: P.args, **kwargs: P.kwargs) -> Topology:
        return loads(make(*args, **kwargs))

    read.__module__ = __name__
    read.__signature__ = signature(make).replace(return_annotation="Topology")  # type: ignore[attr-defined]
    return read


star = _read(generators.star)
ring = _read(generators.ring)
chain = _read(generators.chain)
complete = _read(generators.complete)
torus = _read(generators.torus)
two_sites = _read(generators.two_sites)
