"""The result of a check, and all results as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["holds", "fails", "not claimed"]


@dataclass(frozen=True)
class Check:
    """One line: the check, its verdict, and the reason, with numbers."""

    name: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Verification:
    """All checks of *algorithm*, in order."""

    algorithm: str
    workload: str
    checks: Sequence[Check]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.verdict == "fails"]

    def __getitem__(self, name: str) -> Check:
        """Return the first check of this name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check {name!r}: {', '.join(dict.fromkeys(check.name for check in self.checks))}")

    def table(self, width: int = 120) -> str:
        """Return the table with one check per line, wrapped to *width*."""
        name_width = max([len(check.name) for check in self.checks], default=0)
        lines = [f"{self.algorithm} on {self.workload}"]
        for check in self.checks:
            head = f"  {check.name:<{name_width}}  {check.verdict:<11}  "
            lines += textwrap.wrap(
                check.reason, max(width, len(head) + 30), initial_indent=head, subsequent_indent=" " * len(head)
            )
        counts = [
            f"{sum(check.verdict == verdict for check in self.checks)} {verdict}"
            for verdict in ("holds", "fails", "not claimed")
        ]
        return "\n".join([*lines, ", ".join(counts)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "workload": self.workload,
            "ok": self.ok,
            "checks": [asdict(check) for check in self.checks],
        }

    def __str__(self) -> str:
        return self.table()
