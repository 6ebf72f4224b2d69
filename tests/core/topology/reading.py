"""A small topology file, and the errors of reading one."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.topology import loads

TWO = """\
nodes:
  a: {device: mac-mini-m4}
  b: {device: raspberry-pi-5}
links:
  - {between: [a, b], bandwidth: 1 Gbps, latency: 150 us}
"""


def problems_of(text: str | dict[str, Any], **overrides: Any) -> list[str]:
    with pytest.raises(UsageError) as error:
        loads(text, "t.yaml", overrides={key.replace("__", "."): value for key, value in overrides.items()})
    return [str(problem) for problem in error.value.problems]


def one_problem(text: str | dict[str, Any]) -> str:
    problems = problems_of(text)
    assert len(problems) == 1, problems
    return problems[0]
