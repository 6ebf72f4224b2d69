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
# # What should I buy to run a 70B?
#
# Llama 3 70B in the format `q4` takes 44.9 GB, plus a cache. Which machines of the price list can hold it together,
# and which generate as fast as you read? A plan answers without loading anything: it counts bytes and FLOPs.

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
from simcluster.lab.what_if.offers import offers
from simcluster.lab.what_if.perturb import read_parts
from simcluster.lm.load.answers import Objectives
from simcluster.lm.load.arrivals import offered
from simcluster.lm.load.lengths import fixed
from simcluster.lm.load.metrics import figures
from simcluster.lm.plan.plan import make_plan
from simcluster.lm.plan.shape import PRESETS, with_held_weights
from simcluster.lm.plan.times import Lengths
from simcluster.lm.serving.bench import BenchTarget, bench_cluster

px.defaults.template, px.defaults.height = TEMPLATE, 360

MODEL, LENGTHS = with_held_weights(PRESETS["70b"], "q4"), Lengths(512, 128)
parts = read_parts()
device_usd = {part.name: part.price_usd for part in parts.devices}
link_usd = {part.name: part.price_usd for part in parts.links}

# %% [markdown]
# ## Shelves of equal machines
#
# Up to eight of each, with gigabit Ethernet and a switch. Prices are those of `topologies/parts.yaml`: round estimates.

# %%
rows = []
for device, each_usd in device_usd.items():
    for n in range(1, 9):
        shelf = simcluster.Topology.star(n, bandwidth="941 Mbps", latency="75 us", device=device)
        usd = n * (each_usd + link_usd["ethernet-1g"])
        one, many = make_plan(shelf, MODEL, LENGTHS, 8).rankings
        if one.placements:
            best = one.placements[0]
            rows.append((device, n, usd, best.kind, best.tokens_per_s, best.ttft_s, many.best_per_s))
columns = ["device", "machines", "USD", "placement", "tokens/s", "TTFT, s", "tokens/s of 8"]
shelves = pd.DataFrame(rows, columns=columns)
px.line(shelves, x="USD", y="tokens/s", color="device", markers=True, hover_data=["machines", "placement"])

# %%
figure = px.line(shelves, x="USD", y="TTFT, s", color="device", markers=True, log_y=True, hover_data=["machines"])
figure.update_yaxes(dtick="D2")

# %% [markdown]
# ## If a shelf is there already
#
# One more purchase for the shelf of the quickstart: three Mac minis and two Raspberry Pis.

# %%
own = simcluster.Topology.load("smolcluster")
plan = make_plan(own, MODEL, LENGTHS, 8, offers(own))
gains = [(one.part, one.place, one.price_usd, *one.tokens_per_s) for one in plan.best_purchases(0)]
pd.DataFrame(gains, columns=["part", "in the place of", "USD", "tokens/s", "tokens/s of 8"]).round(2)

# %% [markdown]
# ## Three Mac minis with M4 Pro under load
#
# Requests come at random, one every half minute to four minutes on average. A request is good if its first token
# arrives within a minute, and five tokens per second from then on.

# %%
pros = simcluster.Topology.star(3, bandwidth="941 Mbps", latency="75 us", device="mac-mini-m4-pro")
good = Objectives(ttft_s=60.0, tpot_s=0.2)
loads = []
for minutes in (0.5, 1, 2, 4):
    load = offered(1 / (60 * minutes), 50, fixed(LENGTHS.prompt), fixed(LENGTHS.output))
    found = figures(bench_cluster(BenchTarget("70b", placement="pipeline", weights="q4"), pros, load).answers, good)
    loads.append((minutes, found.ttft_s.median, found.tpot_s.median, found.good / found.requests))
under_load = pd.DataFrame(loads, columns=["minutes", "TTFT, s", "TPOT, s", "good"])
under_load.round(2)

# %%
shelves.groupby("device").first().sort_values("USD").round(2)

# %% [markdown]
# ## The answer
#
# Three Mac minis with M4 Pro (24 GB each, and macOS leaves 16; 4,290 USD with cables): 5.1 tokens/s for one request,
# and 32 s until the first token of 512; eight at once need a fourth (5,720 USD), which gives them 40 tokens/s. Five Mac
# minis with M4 (3,150 USD) give 4.2 tokens/s and the first token after 48 s, and 18 tokens/s for eight. Seven Raspberry
# Pis hold the model for 980 USD, but need ten minutes to read the prompt, and 2.3 seconds per token. All of these are
# times on the CPUs.
#
# More of the same machines help less than better ones: eight M4s with tensor parallelism cost 5,040 USD and are still
# slower than the three Pros. The shelf of the quickstart has no room for the model; with an M4 Pro in place of a Pi it
# makes 2.7 tokens/s.
#
# Under load the three serve one user at a time: with a request every four minutes, four of five are good; with one
# every two minutes, two of three are, since each prompt interrupts the other answers.
