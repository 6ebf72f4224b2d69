"""The environment of worlds, which checks what their processes yield, and knows which one ran last."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy
from simpy.events import Event, Process


class WorldEnvironment(simpy.Environment):
    """A SimPy environment that checks its processes. *resumed* is the generator of the one that ran last."""

    resumed: Generator[Event, Any, Any] | None = None

    def process(self, generator: Generator[Event, Any, Any]) -> Process:
        """Start a process; a *generator* that yields anything but events of this environment fails at that line."""
        return Process(self, _EventGenerator(self, generator))  # type: ignore[arg-type]


class _EventGenerator:
    """The *generator* of a process of *env*, with every event checked that it yields."""

    def __init__(self, env: WorldEnvironment, generator: Generator[Event, Any, Any]) -> None:
        self.__name__ = getattr(generator, "__name__", type(generator).__name__)
        self._env = env
        self._generator = generator
        if not hasattr(generator, "throw"):
            raise ValueError(f"{generator!r:.80} is no generator: call the function, as in env.process(repair(env))")

    def send(self, value: object) -> Event:
        self._env.resumed = self._generator
        return self._checked(self._generator.send(value))

    def throw(self, error: BaseException) -> Event:
        return self._checked(self._generator.throw(error))

    def _checked(self, event: object) -> Event:
        while not (isinstance(event, Event) and event.env is self._env):
            other = "an event of another environment" if isinstance(event, Event) else f"{event!r:.80}"
            event = self._generator.throw(TypeError(f"yielded {other}; a process yields events, as env.timeout(1.0)"))
        return event
