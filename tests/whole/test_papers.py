"""Every paper's result has its shape in the short setting too, and docs/papers.md tells of all of them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments.papers.frame.lab import lab
from experiments.papers.frame.page import PAGE, details, files, line, names, overview, page, paper, recorded
from experiments.papers.frame.paper import Check, Paper, agrees, exceeds, verdict_of

YES, NO = Check("one", "1", "1", True), Check("two", "2", "3", False)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_it_comes_out_as_its_file_says(name: str) -> None:
    one = paper(name)
    with lab(full=False) as here:
        checks = one.measure(here)
    assert not one.surprises(checks), line(name, checks)


def test_the_page_tells_of_all_papers_what_their_files_say() -> None:
    results = recorded()
    assert list(results) == names(), "`python -m experiments.papers NAME` adds one"
    assert PAGE.read_text() == page(results), "`python -m experiments.papers --page` writes it again"


@pytest.mark.parametrize("name", names())
def test_in_full_it_came_out_as_its_file_says(name: str) -> None:
    assert not paper(name).surprises(recorded().get(name, []))


def test_a_verdict_follows_from_the_checks() -> None:
    assert verdict_of([YES, YES]) == "reproduced"
    assert verdict_of([YES, NO]) == "partly"
    assert verdict_of([NO]) == "not reproduced"
    assert agrees("", 1.05, 1.0, 0.1).holds
    assert not agrees("", 1.2, 1.0, 0.1).holds
    assert not agrees("", float("nan"), 1.0, 0.1).holds
    assert exceeds("", 2.1, 1.0, times=2).holds
    assert not exceeds("", 2.0, 1.0, times=2).holds


def test_what_is_said_to_be_missed_must_be_missed_and_nothing_else() -> None:
    honest = Paper("T", "A 2000. T", "", "", "", lambda _: [YES, NO], missed={"two": "so"})
    assert honest.surprises([YES, NO]) == []
    assert honest.surprises([NO]) == []
    assert honest.surprises([Check("two", "2", "2", True)]) == ["two: expected 2, ours 2"]
    assert Paper("T", "A 2000. T", "", "", "", lambda _: []).surprises([NO]) == ["two: expected 2, ours 3"]
    assert honest.surprises([]) == ["nothing was measured"]


def test_the_site_has_each_paper_with_its_checks_and_why_something_is_missed() -> None:
    written = details()
    for name in names():
        assert f"`experiments/{files()[name]}`" in written
        assert f"Claim: {paper(name).claim}\n" in written
        for check, why in paper(name).missed.items():
            assert f"Not reproduced, {check}: {why}" in written


def test_the_terminal_shows_claim_ours_and_verdict_of_each() -> None:
    shown = io.StringIO()
    Console(width=160, file=shown).print(overview({"ssp": [YES, NO]}))
    text = " ".join(shown.getvalue().split())
    for words in ("claim", "ours", "verdict", "1 of 2 as expected; one: 1; two: 3", "partly"):
        assert words in text
