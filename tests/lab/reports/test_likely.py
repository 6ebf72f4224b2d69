"""By when most seeds end: a quantile that a hand can count."""

from __future__ import annotations

import pandas as pd

from simcluster.lab.reports.sweeps.likely import likely
from simcluster.runs.seed_quantiles import kept_by_most


def test_nine_of_ten_runs_keep_the_quantile_and_nine_runs_have_none() -> None:
    assert kept_by_most([float(number) for number in range(10, 0, -1)]) == 9.0
    assert kept_by_most([float(number) for number in range(20)]) == 17.0  # the 18th of 20
    assert kept_by_most([1.0] * 9) is None


def test_a_sweep_tells_it_per_combination_and_a_failed_run_never_ends() -> None:
    rows = [
        {
            "seed": seed,
            "crew": crew,
            "elapsed_s": float(10 * crew + seed),
            "status": "done" if seed or crew == 2 else "failed",
        }
        for crew in (1, 2)
        for seed in range(10)
    ]
    table = pd.DataFrame(rows)
    # With one person, seed 0 fails: the nine others end by 19 s. With two, the ninth of 20 to 29 s is 28 s.
    (sentence,) = likely(table, ["crew"])
    assert sentence == "A run ends by 19.0 s with crew 1 and 28.0 s with crew 2, in 90 % of 10 seeds."
    assert likely(table[table["crew"] == 2], []) == ["A run ends by 28.0 s, in 90 % of 10 seeds."]
    assert likely(table[table["seed"] < 9], ["crew"]) == []
