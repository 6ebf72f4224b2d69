"""A world of an experiment: a user's generator function with its settings, checked before the run."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simcluster.documents.captured.source import content_of
from simcluster.documents.settings import Function
from simcluster.documents.user_code import INSTEAD, catch_alls, imports_of
from simcluster.errors import Problem, raise_all
from simcluster.process.own_frames import origin

_INSTEAD = dict.fromkeys(INSTEAD, "env.timeout(...), events and resources of simpy") | {
    "time": "env.now, and env.timeout(...) to wait",
    "datetime": "env.now, the seconds since the run has begun",
    "random": "cluster.rng(NAME), which the run's seed decides",
}
del _INSTEAD["simpy"]
SIGNATURE = "(env, cluster, *, settings...)"


@dataclass(frozen=True)
class PlannedWorld:
    """The world *function* under the name *name*, with validated *settings*."""

    name: str
    function: Function
    settings: Mapping[str, Any] = field(default_factory=dict)

    def begun(self, env: Any, cluster: Any) -> Generator[Any, Any, Any]:
        """Return the generator of this world, for a SimPy process of *env* that acts on *cluster*."""
        generator: Generator[Any, Any, Any] = self.function(env, cluster, **self.settings)
        return generator


def check_world(function: Function, what: str) -> None:
    """Raise UsageError, with every problem, unless *function* can be a world; *what* is its key."""
    file = inspect.getsourcefile(function)
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = origin(file, code.co_firstlineno if code is not None else None)
    problems = catch_alls(function, what)
    if not inspect.isgeneratorfunction(function):
        found = f"{function.__name__}, which never yields"
        problems.append(
            Problem(what, found, "a generator: def storm(env, cluster) that yields env.timeout(...)", *place)
        )
    positional = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(positional) != 2:
        found = f"{function.__name__} with {len(positional)} positional arguments"
        problems.append(Problem(what, found, SIGNATURE, *place))
    for root, *at in imports_of(content_of(Path(file))) if file is not None else ():
        if root in _INSTEAD:
            problems.append(Problem("import", root, _INSTEAD[root], file, *at))
    raise_all(problems)
