"""Puts predicted and measured times side by side as plain text."""

from __future__ import annotations

from collections.abc import Mapping

from simcluster.runs import words
from simcluster.runs.prediction import PHASES, Predicted

MAX_NODES = 20
MAX_LINKS = 40


def describe_phases(phases: Mapping[str, Mapping[str, Predicted]]) -> list[list[str]]:
    """Rows: a heading, all nodes together, then each node."""
    everyone = {
        phase: Predicted(
            sum(times[phase].predicted_s for times in phases.values()),
            sum(times[phase].measured_s for times in phases.values()),
        )
        for phase in PHASES
    }
    rows = [["predicted, measured", *(text for phase in PHASES for text in (phase, "", ""))]]
    rows.append(["all nodes", *_cells(everyone)])
    rows += [[name, *_cells(times)] for name, times in list(phases.items())[:MAX_NODES]]
    if len(phases) > MAX_NODES:
        rows.append([f"and {len(phases) - MAX_NODES} more nodes"])
    return rows


def describe_links(links: Mapping[str, Predicted]) -> list[list[str]]:
    """Rows: a heading, then each link: seconds from send to receipt."""
    rows = [["send to receipt", "predicted", "measured", ""]]
    rows += [[name, *_three(times)] for name, times in list(links.items())[:MAX_LINKS]]
    if len(links) > MAX_LINKS:
        rows.append([f"and {len(links) - MAX_LINKS} more links"])
    return rows


def _cells(times: Mapping[str, Predicted]) -> list[str]:
    return [cell for phase in PHASES for cell in _three(times[phase])]


def _three(times: Predicted) -> list[str]:
    ratio = "" if times.ratio is None else f"x{times.ratio:.3g}"
    return [words.seconds(times.predicted_s), words.seconds(times.measured_s), ratio]
