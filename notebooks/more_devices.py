# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why is it slower with more devices?
#
# Llama 2 7B with four bits per weight on one to eight Raspberry Pis with a switch between them. For one request the
# weights are read once per token; tensor parallelism divides the reading, and pays two all-reduces per layer.

# %%
import pandas as pd
import plotly.express as px

import simcluster
from simcluster.inference.load.arrivals import offered
from simcluster.inference.load.lengths import fixed
from simcluster.inference.load.metrics import figures
from simcluster.inference.plan.placements import rank
from simcluster.inference.plan.shape import PRESETS
from simcluster.inference.plan.shelf import Shelf
from simcluster.inference.plan.times import Lengths, all_reduce
from simcluster.serving.bench import Served, bench_cluster

PI = {"flops": "60 GFLOP/s", "memory_bandwidth": "8.4 GB/s", "memory": "16 GB", "operator_overhead": "5 us"}
COUNTS = (1, 2, 4, 8)


def shelf(n, wait_ms):
    """Return *n* Pis; an exchange between two of them takes *wait_ms* before its first byte arrives."""
    star = simcluster.Topology.star(n, bandwidth="1 Gbps", latency=f"{wait_ms / 2} ms", device=PI)
    return Shelf(star, PRESETS["7b"], Lengths(64, 64))


def best(n, wait_ms, kind, requests=1):
    return next(one for one in rank(shelf(n, wait_ms), requests).placements if one.kind == kind and len(one.parts) == n)


# %% [markdown]
# ## The wait before a byte decides
#
# 0.1 ms is a good switch, 1 ms what two Pi 5 were measured with (see `docs/papers.md`), 3 ms a cheap switch with eight
# senders at once.

# %%
rows = [
    {"devices": n, "wait, ms": wait_ms, "tokens/s": best(n, wait_ms, "alone" if n == 1 else "tensor").tokens_per_s}
    for wait_ms in (0.1, 1.0, 3.0)
    for n in COUNTS
]
tensor = pd.DataFrame(rows)
px.line(tensor, x="devices", y="tokens/s", color="wait, ms", log_x=True, markers=True)

# %% [markdown]
# ## Where a token's time goes
#
# Reading halves with every doubling. 64 all-reduces wait as long as before, or longer: their bytes hardly count.

# %%
parts = []
for n in COUNTS[1:]:
    reduce = all_reduce(shelf(n, 3.0).topology, shelf(n, 3.0).topology.workers)
    size, times = PRESETS["7b"].hidden_bytes(1), 2 * PRESETS["7b"].layers
    waits_s, bytes_s = times * reduce.latency_s, times * reduce.wire_s * size
    reading_s = best(n, 3.0, "tensor").token_s - waits_s - bytes_s
    parts += [(n, "reading", reading_s), (n, "waiting", waits_s), (n, "bytes", bytes_s)]
spent = pd.DataFrame(parts, columns=["devices", "part", "seconds"]).astype({"devices": str})
px.bar(spent, x="devices", y="seconds", color="part")

# %% [markdown]
# ## And a pipeline?
#
# It divides layers, not a token's way through them: one request never gets faster. Many requests keep all stages busy.

# %%
kinds = {n: "alone" if n == 1 else "pipeline" for n in COUNTS}
pipeline = pd.DataFrame(
    [(n, requests, best(n, 1.0, kinds[n], requests).tokens_per_s) for requests in (1, 8) for n in COUNTS],
    columns=["devices", "requests at once", "tokens/s"],
)
px.line(pipeline, x="devices", y="tokens/s", color="requests at once", log_x=True, markers=True)

# %% [markdown]
# ## Under load
#
# Thirty requests in a Poisson stream, one per ten seconds, simulated: what users of the shelf wait for.

# %%
load = offered(0.1, 30, fixed(64), fixed(16), seed=1)
waits = {}
for n in (1, 4):
    found = figures(bench_cluster(Served("7b", placement=kinds[n]), shelf(n, 1.0).topology, load).answers)
    waits[n] = {"TTFT, s": found.ttft_s.median, "TPOT, s": found.tpot_s.median, "waiting": found.mean_in_system}
pd.DataFrame(waits).T.round(2)

# %% [markdown]
# ## The answer
#
# Because every all-reduce waits, however few bytes it sends. With a wait of 3 ms eight Pis are no faster than one,
# and two are slower: 64 all-reduces wait 0.38 s per token, and reading all the weights takes 0.46 s. With 1 ms eight
# are 2.3 times as fast as one, with 0.1 ms 5 times. A pipeline never makes one request faster; for eight at once,
# four Pis give 3.6 times the tokens of one, and eight not more than four. Under load that is what counts: with four
# Pis in a pipeline the first token of a request comes five times as early as with one.

# %%
rate = tensor.set_index(["wait, ms", "devices"])["tokens/s"]
print(rate.unstack().round(2))
assert rate[3.0, 2] < 0.75 * rate[3.0, 1] and rate[3.0, 8] < 1.02 * rate[3.0, 1]
assert 2.2 < rate[1.0, 8] / rate[1.0, 1] < 2.3 and 5.1 < rate[0.1, 8] / rate[0.1, 1] < 5.3
seconds = spent.set_index(["part", "devices"])["seconds"]
print(seconds.unstack().round(3))
assert (seconds["waiting"].round(2) == 0.38).all() and seconds["bytes"].max() < 0.02
assert 2 * seconds["reading", "2"] > 0.45
many = pipeline.set_index(["requests at once", "devices"])["tokens/s"]
print(many.unstack().round(2))
assert many[1].is_monotonic_decreasing
assert 3.5 < many[8, 4] / many[8, 1] < 3.7 and many[8, 8] < many[8, 4]
assert 4.5 < waits[1]["TTFT, s"] / waits[4]["TTFT, s"] < 5.5
