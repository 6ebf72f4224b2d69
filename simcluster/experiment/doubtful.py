"""The warnings of a run, told to the user of this process."""

from __future__ import annotations

import logging

from simcluster.results import Run

log = logging.getLogger("simcluster.run")


def in_words(run: Run) -> list[str]:
    """Return a line for each warning of *run*."""
    return [f"warning: {row['text']}" for row in run.warnings]


def told(run: Run) -> Run:
    """Return *run*, whose warnings have been logged."""
    for words in in_words(run):
        log.warning("%s", words)
    return run
