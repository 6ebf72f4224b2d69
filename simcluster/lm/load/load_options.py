"""The options that describe a load, their validation, and the objectives of its goodput."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.load.answers import Objectives
from simcluster.lm.load.arrivals import MOST_REQUESTS, OfferedRequest, at_rate, offered
from simcluster.lm.load.lengths import length_of
from simcluster.lm.load.trace import RequestTrace, read_trace
from simcluster.spelling import nearest

T = TypeVar("T")


@dataclass(frozen=True)
class LoadOptions:
    """A load of *requests* at *rate* per second with random lengths, or from the file *trace*.

    The lengths are strings that `length_of` reads. With a *trace*, a *rate* rescales its times;
    without a rate, its times are used as they are.
    """

    rate: float | None
    requests: int = 200
    burstiness: float = 1.0
    prompt_tokens: str = "512"
    output_tokens: str = "128"
    trace: Path | None = None
    seed: int = 0

    def offered(self) -> list[OfferedRequest]:
        """Return the requests of the load. Raise UsageError with all problems."""
        return self.read().requests

    def read(self) -> RequestTrace:
        """Return the requests of the load, and what its file was read as. Raise UsageError with all problems."""
        problems = self._problems()
        prompt = collected(problems, lambda: length_of(self.prompt_tokens, "--prompt-tokens"))
        output = collected(problems, lambda: length_of(self.output_tokens, "--output-tokens"))
        trace = self.trace
        if trace is not None:
            # A wrong number of requests is already a problem. Read the trace with a valid number to
            # find further problems.
            recorded = collected(problems, lambda: read_trace(trace, min(max(self.requests, 1), MOST_REQUESTS)))
            if recorded is not None and not problems:
                scaled = recorded.requests if self.rate is None else at_rate(recorded.requests, self.rate)
                return replace(recorded, requests=scaled)
        if problems or prompt is None or output is None or self.rate is None:
            raise UsageError(problems)
        return RequestTrace(offered(self.rate, self.requests, prompt, output, self.seed, self.burstiness))

    def _problems(self) -> list[Problem]:
        rate = "nothing" if self.rate is None else f"{self.rate:g}"
        checks = (
            ("--rate", rate, "requests per second, above 0, or inf; or --trace FILE",
             self.rate > 0 if self.rate is not None else self.trace is not None),
            ("--rate", rate, "a finite number with --trace",
             self.rate is None or self.trace is None or math.isfinite(self.rate)),
            ("--requests", f"{self.requests}", f"a number from 1 to {MOST_REQUESTS:,}",
             0 < self.requests <= MOST_REQUESTS),
            ("--burstiness", f"{self.burstiness:g}", "a number from 0.001 to 1,000", 1e-3 <= self.burstiness <= 1e3),
            ("--burstiness", f"{self.burstiness:g}", "none with --trace, which has its own arrivals",
             self.trace is None or self.burstiness == 1.0),
            ("--prompt-tokens", self.prompt_tokens, "none with --trace, which has its own lengths",
             self.trace is None or self.prompt_tokens == LoadOptions.prompt_tokens),
            ("--output-tokens", self.output_tokens, "none with --trace, which has its own lengths",
             self.trace is None or self.output_tokens == LoadOptions.output_tokens),
            ("--seed", f"{self.seed}", "a whole number from 0 to 2**63 - 1", 0 <= self.seed < 2**63),
        )  # fmt: skip
        return [Problem(flag, found, expected) for flag, found, expected, is_well in checks if not is_well]

    def to_dict(self) -> dict[str, Any]:
        """Return the options for JSON, which cannot represent infinity."""
        is_finite = self.rate is None or math.isfinite(self.rate)
        lengths = {} if self.trace is None else {"prompt_tokens": None, "output_tokens": None, "burstiness": None}
        return {**asdict(self), **lengths, "rate": self.rate if is_finite else "inf", "trace": _text(self.trace)}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def collected(problems: list[Problem], step: Callable[[], T]) -> T | None:
    """Return the result of *step*. If it raises UsageError, add its problems and return None."""
    try:
        return step()
    except UsageError as error:
        problems += error.problems
        return None


def objectives_of(text: str) -> Objectives:
    """Return the objectives in a string such as `ttft:0.5,tpot:0.05`, in seconds.

    Raise UsageError with all problems.
    """
    names = [field.name.removesuffix("_s") for field in fields(Objectives)]
    found: dict[str, float] = {}
    problems = []
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition(":"))
        if name not in names or name in found:
            expected = nearest(name, names) if name not in names else "each once"
            problems.append(Problem("--goodput", repr(name[:40]), expected))
            continue
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = math.nan
        if not 0 < found[name] < math.inf:
            problems.append(Problem("--goodput", repr(part[:80]), f"{name}:SECONDS, above 0"))
    raise_all(problems)
    return Objectives(**{f"{name}_s": number for name, number in found.items()})
