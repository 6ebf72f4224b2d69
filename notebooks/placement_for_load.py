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
# # Which placement for which load?
#
# Llama 3 8B on three Mac minis and two Raspberry Pis: on one Mac alone, as a pipeline, by tensor parallelism, or as
# replicas with one queue. The best for one request is not the best for a stream of them.

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
from simcluster.lm.load.lengths import fixed, length_of
from simcluster.lm.load.metrics import figures
from simcluster.lm.plan.plan import make_plan
from simcluster.lm.plan.shape import PRESETS, with_held_weights
from simcluster.lm.plan.times import Lengths
from simcluster.lm.serving.bench import BenchTarget, bench_cluster

px.defaults.template, px.defaults.height = TEMPLATE, 360

shelf = simcluster.Topology.load("smolcluster")
plan = make_plan(shelf, with_held_weights(PRESETS["8b"], "q4"), Lengths(128, 16), 8)

# %% [markdown]
# ## The plan, for one request and for eight at once

# %%
best = [
    (one.kind, ranking.requests, one.tokens_per_s, one.ttft_s)
    for ranking in plan.rankings
    for one in reversed(ranking.placements)
]
planned = pd.DataFrame(best, columns=["placement", "at once", "tokens/s", "TTFT, s"])
planned = planned.groupby(["placement", "at once"]).last().unstack()
planned.round(2)

# %% [markdown]
# ## A stream of requests
#
# Twenty requests in a Poisson stream, at rates from one every ten seconds to two per second, in the simulator.

# %%
PLACEMENTS, RATES = ("alone", "pipeline", "replicas"), (0.1, 0.5, 1.0, 2.0)
rows = []
for rate in RATES:
    load = offered(rate, 20, fixed(128), length_of("uniform:4:28", "output"))
    for placement in PLACEMENTS:
        found = figures(bench_cluster(BenchTarget("8b", placement=placement, weights="q4"), shelf, load).answers)
        rows.append((placement, rate, found.ttft_s.p90, found.tpot_s.median, found.mean_in_system))
columns = ["placement", "requests/s", "TTFT of 90 %, s", "TPOT, s", "in the system"]
loads = pd.DataFrame(rows, columns=columns)
figure = px.line(loads, x="requests/s", y="TTFT of 90 %, s", color="placement", log_x=True, log_y=True, markers=True)
figure.update_xaxes(tickvals=RATES).update_yaxes(dtick="D2")

# %%
px.line(loads, x="requests/s", y="TPOT, s", color="placement", log_x=True, markers=True).update_xaxes(tickvals=RATES)

# %% [markdown]
# ## The answer
#
# Replicas, as soon as requests overlap, if the model fits each node. The plan sees hardly a difference: all placements
# read the same weights at the same pace, within 10 % in tokens per second, for one request and for eight at once. It
# leaves out prompts: on one Mac, or in a pipeline, every new prompt interrupts the answers of all others. At two
# requests per second, one request in ten waits 3.3 seconds for its first token on one Mac, 1.3 in a pipeline, and 0.7
# with replicas; tokens come every 0.2, 0.12 and 0.06 s.
#
# At one request every ten seconds, any placement will do. Tensor parallelism gives a single request its first token a
# third sooner, and hardly more tokens. A pipeline is for a model that fits on no single node.
