"""The page docs/memory.md: a row for each run, and the growth over evaluations."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from simcluster.units import format_size
from tools.memory_table.answering import Held, answering_table, words
from tools.memory_table.cases import EVALUATIONS, MOST_APART, MOST_RATIO, Row

NOTES = Path(__file__).with_name("notes.md")
"""Explanations of the numbers. They are in a separate file, so that a new table keeps them."""

WIDTH = 120


def report(rows: Sequence[Row], flat: tuple[int, int] | None, answered: Sequence[Held], missing: Sequence[str]) -> str:
    """Return the whole page. *missing* lists the runs of the table that were not measured."""
    release = ".".join(platform.release().split(".")[:2])
    beyond = sum(not row.is_within for row in rows)
    told = (
        f"Four real processes of one machine, {platform.system()} {release}, three steps, AdamW. The limit is "
        f"{MOST_RATIO:g} times the prediction; {beyond} of {len(rows)} processes are beyond it. The table has "
        "the process of each run with the largest ratio." + (f" Not measured: {'; '.join(missing)}." if missing else "")
    )
    blocks = [
        "# Memory: predicted and measured\n\nMade by `make memory`.",
        "\n".join(wrap(told, WIDTH)),
        "\n".join(table(rows)),
        *(["\n".join(wrap(flat_words(flat), WIDTH))] if flat is not None else []),
        *(_inference(answered) if answered else []),
        NOTES.read_text(encoding="utf-8").rstrip(),
    ]
    return "\n\n".join(blocks) + "\n"


def _inference(rows: Sequence[Held]) -> list[str]:
    return ["## Inference", "\n".join(wrap(words(rows), WIDTH)), "\n".join(answering_table(rows))]


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table. Each run is shown by its process with the largest ratio."""
    worst: dict[tuple[str, str], Row] = {}
    for row in rows:
        worst[row.algorithm, row.size] = max(row, worst.get((row.algorithm, row.size), row), key=lambda one: one.ratio)
    head = ["| algorithm | model | node | grown | predicted | ratio |", "| --- | --- | --- | ---: | ---: | ---: |"]
    return head + [
        f"| {row.algorithm} | {row.size} | {row.node} | {format_size(row.grown_bytes)} | "
        f"{format_size(row.predicted_bytes)} | {row.ratio:.2f}{'' if row.is_within else ' (beyond)'} |"
        for row in worst.values()
    ]


def is_flat(flat: tuple[int, int]) -> bool:
    """Return whether the growths over few and over many evaluations differ by at most
    MOST_APART.
    """
    few, many = flat
    return abs(many - few) <= MOST_APART * few


def flat_words(flat: tuple[int, int]) -> str:
    """Return a sentence about the growth over evaluations."""
    few, many = map(format_size, flat)
    verdict = "within" if is_flat(flat) else "not within"
    return (
        f"Rank 0 of all_reduce_dp on two processes, a model of 100 MB evaluated at every step: growth of {few} over "
        f"{EVALUATIONS[0]} evaluations and of {many} over {EVALUATIONS[1]}, {verdict} {MOST_APART:.0%} of each other."
    ).replace("%", " %")
