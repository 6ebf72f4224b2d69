"""The result of a check, and the table of all results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["holds", "fails", "not claimed"]

_ERROR = re.compile(r"\b(?P<kind>[A-Z][a-z][A-Za-z]+): .*", re.DOTALL)
"""Pattern of a run's error inside a reason: its type and its message."""

_TIME = re.compile(r" at [0-9.e+-]+ s\b")


class CheckFailed(Exception):
    """Raised by a check that fails, with the reason."""


class NotClaimed(Exception):
    """Raised by a check that does not apply, with the reason."""


@dataclass(frozen=True)
class Check:
    """One line of the table: a check's name, its verdict, and the reason with numbers."""

    name: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True, repr=False)
class Verification:
    """The results of all checks of an algorithm, in order."""

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
        """Return the first check called *name*."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check {name!r}: {', '.join(dict.fromkeys(check.name for check in self.checks))}")

    def table(self, width: int = 120) -> str:
        """Return the table as text, wrapped to *width* characters."""
        rows = self._rows()
        name_width = max([len(name) for name, _, _ in rows], default=0)
        lines = [f"{self.algorithm} on {self.workload}"]
        for name, verdict, reason in rows:
            head = f"  {name:<{name_width}}  {verdict:<11}  "
            lines += textwrap.wrap(
                reason, max(width, len(head) + 30), initial_indent=head, subsequent_indent=" " * len(head)
            )
        return "\n".join([*lines, self.counts])

    def _rows(self) -> list[list[str]]:
        """Return the lines of the table as (name, verdict, reason).

        An error that fails several checks is shown once, and all checks that are not claimed share
        a line. Two errors count as equal if only their times differ, as in runs of different sizes.
        """
        rows: list[list[str]] = []
        first: dict[str, tuple[list[str], list[str]]] = {}  # error without its time -> (its row, other checks)
        for check in self.checks:
            error = _ERROR.search(check.reason) if check.verdict == "fails" else None
            key = "" if error is None else _TIME.sub("", error[0])
            if key in first:
                first[key][1].append(check.name)
            elif check.verdict != "not claimed":
                rows.append([check.name, check.verdict, check.reason])
                first |= {key: (rows[-1], [])} if key else {}
        for row, others in first.values():
            row[2] += f"; the same fails {listed(dict.fromkeys(others))}" if others else ""
        missing = dict.fromkeys(check.name for check in self.checks if check.verdict == "not claimed")
        if missing:
            rows.append([f"{len(missing)} checks" if len(missing) > 1 else next(iter(missing)), "not claimed", ""])
            rows[-1][2] = f"{listed(missing)}: to_dict() and --json have the reasons"
        return rows

    @property
    def counts(self) -> str:
        """The number of checks with each verdict, as text."""
        verdicts = [check.verdict for check in self.checks]
        return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("holds", "fails", "not claimed"))

    def to_dict(self) -> dict[str, Any]:
        return {"algorithm": self.algorithm, "workload": self.workload, "ok": self.ok} | {
            "checks": [asdict(check) for check in self.checks]
        }

    def _repr_html_(self) -> str:
        from simcluster.lab.reports.notebook import card

        return card(
            f"{self.algorithm} on {self.workload}: {self.counts}", ["check", "verdict", "why"], self._rows(), []
        )

    def __repr__(self) -> str:
        return f"Verification({self.algorithm} on {self.workload}: {self.counts})"

    def __str__(self) -> str:
        return self.table()


def judged(name: str, check: Callable[[], str]) -> Check:
    """Run *check*; return its result as a line called *name*.

    *check* returns the reason why it holds, or raises CheckFailed or NotClaimed.
    """
    try:
        return Check(name, "holds", check())
    except CheckFailed as failed:
        return Check(name, "fails", str(failed))
    except NotClaimed as missing:
        return Check(name, "not claimed", str(missing))


def expect(condition: bool, told: str) -> str:
    """Return *told* if *condition* holds; otherwise raise CheckFailed with *told*."""
    if not condition:
        raise CheckFailed(told)
    return told


def listed(things: Iterable[object]) -> str:
    """Return *things* as text, such as "1, 2 and 4"."""
    words = [str(thing) for thing in things]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(settings: Mapping[str, Any]) -> str:
    """Return *settings* as text, such as "pull_interval=4, polyak=0.5"; "the defaults" if empty."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "the defaults"
