"""Two hundred seeds of faults hold what docs/faults.md promises; so does every case that once did not."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.errors import UsageError
from simcluster.experiment import read_experiment
from tests.support.levels import sample_of
from tests.support.root import TOOLS
from tools.mutants.of_faults import PLANTED
from tools.mutants.trial import ROOT
from tools.swarm import shrink as shrinking
from tools.swarm import soak as soaking
from tools.swarm.case import DRAWING, NOISY, NORMED, SLOPE, Case, read_case
from tools.swarm.draw.case import MOST, draw_case
from tools.swarm.draw.faults import KINDS, Clock, draw_faults, kinds_of
from tools.swarm.draw.topology import IN_PARTS, ODD_SHAPES
from tools.swarm.known import KEPT, SEEDS
from tools.swarm.marks import DRAWN, _drawn, declared
from tools.swarm.soak import Totals, saved, soak
from tools.swarm.telling import headline
from tools.swarm.trial import Verdict, try_case, try_seed
from tools.swarm.twice import EVERY, apart, fingerprint
from tools.swarm.worlds import broken

SEED_COUNT = 200
AT_ONCE = 50
WORLDS_AT_ONCE = 20
CASES = sorted((TOOLS / "swarm" / "kept").glob("*.yaml"))
CLOCK = Clock(0.1, (0.02, 0.04, 0.06, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("first", sample_of(range(0, SEED_COUNT, WORLDS_AT_ONCE), every=10))
def test_seeds_under_random_worlds_break_no_promise(first: int, tmp_path: Path) -> None:
    found = {seed: [*broken(seed, tmp_path)] for seed in range(first, first + WORLDS_AT_ONCE)}
    assert not {seed: how for seed, how in found.items() if how not in ([], ["refused"])}
    assert sum(how == [] for how in found.values()) > 0.7 * WORLDS_AT_ONCE


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEED_COUNT, AT_ONCE))
def test_what_is_promised_is_held(first: int, tmp_path: Path) -> None:
    lines = []
    for seed in range(first, first + AT_ONCE):
        verdict = try_seed(seed, tmp_path)
        if verdict.broken and seed not in SEEDS:
            lines.append(headline(verdict))
    assert not lines, "\n".join(lines)


@pytest.mark.slow
def test_every_tenth_seed_is_the_same_in_another_process(tmp_path: Path) -> None:
    assert not list(apart({seed: fingerprint(try_seed(seed, tmp_path)) for seed in range(0, 100, EVERY)}))


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_was_broken_once_is_held(path: Path, tmp_path: Path) -> None:
    case = read_case(path)
    verdict = try_case(case, tmp_path)
    assert not verdict.refused
    assert len(verdict.runs) > bool(case.faults)
    assert not verdict.broken or path.stem in KEPT, verdict.broken


@pytest.mark.slow
def test_a_seed_draws_the_same_every_time_and_almost_always_what_can_be_run() -> None:
    refused = 0
    for seed in range(200):
        case = draw_faults(draw_case(seed), CLOCK)
        assert case == draw_faults(draw_case(seed), CLOCK)
        assert [fault["kind"] for fault in case.faults] == kinds_of(case) or kinds_of(case).count("join") > 1
        try:
            read_experiment(case.document)
        except UsageError:
            refused += 1
    assert refused <= 4


@pytest.mark.slow
@pytest.mark.parametrize("file", [SLOPE, NORMED, DRAWING, NOISY])
def test_a_file_that_only_a_swarm_has_runs(file: str, tmp_path: Path) -> None:
    blocks = {seed: draw_case(seed).document for seed in range(1200)}
    seed = next(
        seed for seed, it in blocks.items() if file in (it["algorithm"].get("path"), it["workload"].get("path"))
    )
    verdict = try_seed(seed, tmp_path)
    assert not verdict.refused
    assert verdict.runs[0].is_done


@pytest.mark.slow
def test_every_algorithm_and_kind_of_fault_is_drawn_and_each_is_left_out_now_and_then() -> None:
    drawn = [draw_faults(draw_case(seed), CLOCK) for seed in range(400)]
    assert {case.algorithm for case in drawn} == set(ALGORITHMS)
    for kind in KINDS:
        has = sum(any(fault["kind"] == kind for fault in case.faults) for case in drawn)
        assert 20 < has < 200, kind
    assert {len(case.faults) for case in drawn} == {0, 1, 2, 3, 4, 5}
    assert {algorithm for kind, _, algorithm in declared() if kind != "drawn"} == set(ALGORITHMS)
    assert {len(case.workers) for case in drawn} == set(range(1, MOST + 1))
    drawn += map(draw_case, range(400, 700))
    assert {what for case in drawn for what in _drawn(case)} == set(DRAWN)
    shapes = {IN_PARTS, *(case.document["topology"]["name"] for case in drawn)}
    assert shapes.issuperset(shape.replace(" ", "-") for shape in ODD_SHAPES)


@pytest.mark.slow
def test_a_topology_in_parts_is_refused_and_else_its_case_is_broken(tmp_path: Path) -> None:
    case = next(case for case in map(draw_case, range(3000)) if case.document["topology"]["name"] == IN_PARTS)
    assert "no route" in try_case(case, tmp_path).refused
    whole = draw_case(1).document["topology"]
    verdict = try_case(draw_case(1).with_document(topology=whole | {"name": IN_PARTS}), tmp_path)
    assert verdict.names == ["a topology in parts is refused"]


@pytest.mark.slow
def test_equal_sizes_by_node_have_the_bits_of_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in map(draw_case, range(999)) if "equal sizes by node" in _drawn(case)).undisturbed
    assert try_case(case, tmp_path).names == []
    monkeypatch.setattr(Case, "batch_sizes", property(lambda case: [5]))
    assert "equal sizes are one size" in try_case(case, tmp_path).names


def test_a_run_that_changes_a_global_generator_breaks_a_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(*given: Any, **options: Any) -> Any:
        random.random()
        return run(*given, **options)

    run = simcluster.run
    monkeypatch.setattr(simcluster, "run", careless)
    assert try_case(draw_case(1).undisturbed, tmp_path).names == ["undisturbed: the caller's generators are kept"]


@pytest.mark.slow
def test_a_case_reads_back_from_its_file(tmp_path: Path) -> None:
    cases = [draw_faults(draw_case(seed), CLOCK) for seed in range(40)]
    assert any(case.is_sloped for case in cases)
    for case in cases:
        case.write(tmp_path / "case.yaml", "why it is kept")
        assert read_case(tmp_path / "case.yaml") == replace(case, seed=case.document["seed"])
        try:
            read_experiment(tmp_path / "case.yaml")  # a sloped workload is found from there
        except UsageError as error:
            assert "found no route" in str(error)  # noqa: PT017 - a topology in parts, which is drawn to be refused


def test_a_failing_case_is_shrunk_to_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(case: Case, place: Path) -> Verdict:
        found = any(fault["kind"] == "crash" for fault in case.faults) and case.document["stop"].get("steps", 9) >= 3
        return Verdict(case, [("it is so", "")] if found else [])

    monkeypatch.setattr(shrinking, "try_case", judge)
    drawn = (judge(draw_faults(draw_case(seed), CLOCK), tmp_path) for seed in range(999))
    large = next(one for one in drawn if one.broken and len(one.case.faults) > 2 and len(one.case.workers) > 3)
    small = shrinking.shrink(large, tmp_path, tries=999).verdict.case
    assert [fault["kind"] for fault in small.faults] == ["crash"]
    assert small.document["stop"] == {"steps": 3}
    assert small.options == {}
    assert len(small.workers) <= 2


def test_a_soak_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(seed: int, place: Path) -> Verdict:
        return Verdict(draw_case(seed), [("it is so", "")] if seed == 7 else [])

    monkeypatch.setattr(soaking, "try_seed", judge)
    monkeypatch.setattr(soaking, "apart", lambda here: iter(()))
    said: list[str] = []
    file = tmp_path / "soak.json"
    soak(saved(file, 0), 5, tmp_path, said.append, file, None)
    totals = saved(file, 0)
    assert (totals.next, totals.broken) == (5, {})
    soak(totals, 9, tmp_path, said.append, file, None)
    assert saved(file, 0).broken == {7: ["it is so"]}
    assert ["--seed 7" in line for line in said] == [True]
    assert saved(file, 0).missing == sorted(declared())
    assert saved(file, 3) == Totals(3, 3)
    reached = Totals(0, 4, marks=Counter({"crash, re-forms, zero": 2}))
    reached.save(file)
    assert saved(file, 0) == reached


def test_every_planted_defect_can_be_planted() -> None:
    numbers = [planted.mutant.number for planted in PLANTED]
    assert len(set(numbers)) == len(numbers) >= 30
    for planted in PLANTED:
        planted.mutant.put_into((ROOT / planted.mutant.file).read_text(encoding="utf-8"))
