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
# Llama 2 7B in the format `q4` on one to eight Raspberry Pis with a switch between them. For one request the weights
# are read once per token; tensor parallelism divides the reading, and pays two all-reduces per layer.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
import pandas as pd
import plotly.express as px

from simcluster.lab.reports.figure_style import TEMPLATE
from simcluster.lm.load.arrivals import offered
from simcluster.lm.load.lengths import fixed
from simcluster.lm.load.metrics import figures
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.shape import PRESETS, with_held_weights
from simcluster.lm.plan.times import Lengths, all_reduce
from simcluster.lm.serving.bench import BenchTarget, bench_cluster

px.defaults.template, px.defaults.height = TEMPLATE, 360

PI = {"flops": "60 GFLOP/s", "memory_bandwidth": "8.4 GB/s", "memory": "16 GB", "operator_overhead": "5 us"}
COUNTS = (1, 2, 4, 8)


def shelf(n, wait_ms):
    """Return *n* Pis; an exchange between two of them takes *wait_ms* before its first byte arrives."""
    star = simcluster.Topology.star(n, bandwidth="1 Gbps", latency=f"{wait_ms / 2} ms", device=PI)
    return ClusterModelCosts(star, with_held_weights(PRESETS["7b"], "q4"), Lengths(64, 64))


def best(n, wait_ms, kind, requests=1):
    return next(one for one in rank(shelf(n, wait_ms), requests).placements if one.kind == kind and len(one.parts) == n)


# %% [markdown]
# ## The wait before a byte decides
#
# 0.1 ms is a good switch, 1 ms was measured between two Pi 5 (see `docs/papers.md`), 3 ms is a cheap switch with eight
# senders at once.

# %%
rows = [
    {"devices": n, "wait, ms": wait_ms, "tokens/s": best(n, wait_ms, "alone" if n == 1 else "tensor").tokens_per_s}
    for wait_ms in (0.1, 1.0, 3.0)
    for n in COUNTS
]
tensor = pd.DataFrame(rows)
px.line(tensor, x="devices", y="tokens/s", color="wait, ms", log_x=True, markers=True).update_xaxes(tickvals=COUNTS)

# %% [markdown]
# ## Where a token's time goes
#
# Reading halves with every doubling. The 64 all-reduces wait as long as before, or longer: their bytes hardly matter.

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
# A pipeline divides the layers, but a token still passes through all of them: one request never gets faster. Many
# requests keep all stages busy.

# %%
kinds = {n: "alone" if n == 1 else "pipeline" for n in COUNTS}
pipeline = pd.DataFrame(
    [(n, requests, best(n, 1.0, kinds[n], requests).tokens_per_s) for requests in (1, 8) for n in COUNTS],
    columns=["devices", "requests at once", "tokens/s"],
)
figure = px.line(pipeline, x="devices", y="tokens/s", color="requests at once", log_x=True, markers=True)
figure.update_xaxes(tickvals=COUNTS)

# %% [markdown]
# ## Under load
#
# Thirty requests in a Poisson stream, one per ten seconds, simulated: how long the users wait.

# %%
load = offered(0.1, 30, fixed(64), fixed(16), seed=1)
waits = {}
for n in (1, 4):
    found = figures(
        bench_cluster(BenchTarget("7b", placement=kinds[n], weights="q4"), shelf(n, 1.0).topology, load).answers
    )
    waits[n] = {"TTFT, s": found.ttft_s.median, "TPOT, s": found.tpot_s.median, "waiting": found.mean_in_system}
pd.DataFrame(waits).T.round(2)

# %% [markdown]
# ## The answer
#
# Because every all-reduce waits, however few bytes it sends. With a wait of 3 ms eight Pis are hardly faster than one,
# and two are slower: 64 all-reduces wait 0.38 s per token, and reading all the weights takes 0.5 s. With 1 ms eight
# are 2.4 times as fast as one, with 0.1 ms 5.4 times.
#
# A pipeline never makes one request faster. For eight at once four Pis give 3.1 times the tokens of one, and eight not
# more than four. Under load that is what counts: with four Pis in a pipeline, a request waits a fifth as long for its
# first token as with one.
