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
# Llama 3 70B with four bits per weight takes 39.7 GB, and a cache besides. Which machines of the price list hold it
# together, and which of them are fast enough to read along?

# %%
import pandas as pd
import plotly.express as px

import simcluster
from simcluster.inference.load.answers import Objectives
from simcluster.inference.load.arrivals import offered
from simcluster.inference.load.lengths import fixed
from simcluster.inference.load.metrics import figures
from simcluster.inference.plan.plan import make_plan
from simcluster.inference.plan.shape import PRESETS
from simcluster.inference.plan.times import Lengths
from simcluster.serving.bench import Served, bench_cluster
from simcluster.what_if.offers import offers
from simcluster.what_if.perturb import read_parts

MODEL, LENGTHS = PRESETS["70b"], Lengths(512, 128)
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
px.line(shelves, x="USD", y="TTFT, s", color="device", markers=True, log_y=True, hover_data=["machines", "placement"])

# %% [markdown]
# ## If a shelf is there already
#
# One purchase more for the shelf of the quickstart: three Mac minis and two Raspberry Pis.

# %%
own = simcluster.Topology.load("smolcluster")
plan = make_plan(own, MODEL, LENGTHS, 8, offers(own))
gains = [(one.part, one.place, one.price_usd, *one.tokens_per_s) for one in plan.best_purchases(0)]
pd.DataFrame(gains, columns=["part", "in the place of", "USD", "tokens/s", "tokens/s of 8"]).round(2)

# %% [markdown]
# ## Two Mac minis with M4 Pro under load
#
# Requests come by chance, one every half minute to four minutes. Good is a request with its first token within a
# minute and five tokens per second from then on.

# %%
pair = simcluster.Topology.star(2, bandwidth="941 Mbps", latency="75 us", device="mac-mini-m4-pro")
good = Objectives(ttft_s=60.0, tpot_s=0.2)
loads = []
for minutes in (0.5, 1, 2, 4):
    load = offered(1 / (60 * minutes), 50, fixed(LENGTHS.prompt), fixed(LENGTHS.output))
    found = figures(bench_cluster(Served("70b", placement="pipeline"), pair, load).answers, good)
    loads.append((minutes, found.ttft_s.median, found.tpot_s.median, found.good / found.requests))
under_load = pd.DataFrame(loads, columns=["minutes", "TTFT, s", "TPOT, s", "good"])
under_load.round(2)

# %% [markdown]
# ## The answer
#
# Two Mac minis with M4 Pro (24 GB each, 2,860 USD with a cable): 5.7 tokens/s for one request, 38 for eight at once,
# and 25 s until the first token of 512. Three Mac minis with M4 (1,890 USD) give 3.2 tokens/s after 49 s. Six Raspberry
# Pis hold the model for 840 USD, but need eight minutes to read the prompt, and 1.7 seconds per token. More of the same
# machines help less than better ones: eight M4 by tensor parallelism are still slower than the pair of Pros, for 5,040
# USD. For the shelf of the quickstart an M4 Pro in the place of a Pi gains two fifths for one request.
#
# Under load the pair is for one user at a time: with a request every four minutes four of five get what they want,
# with one a minute every second, since each prompt interrupts the others' answers.

# %%
first = shelves.groupby("device").first()
print(first.round(2))
pro, mini, pi = (first.loc[name] for name in ("mac-mini-m4-pro", "mac-mini-m4", "raspberry-pi-5"))
assert (pro.machines, mini.machines, pi.machines) == (2, 3, 6) and (pro.USD, mini.USD, pi.USD) == (2860, 1890, 840)
assert 5.5 < pro["tokens/s"] < 5.8 and 37 < pro["tokens/s of 8"] < 40 and 24 < pro["TTFT, s"] < 26
assert 3.1 < mini["tokens/s"] < 3.3 and 48 < mini["TTFT, s"] < 51
assert pi["tokens/s"] < 0.7 and pi["TTFT, s"] > 480
eight = shelves[(shelves.device == "mac-mini-m4") & (shelves.machines == 8)].iloc[0]
assert eight.placement == "tensor" and eight["tokens/s"] < pro["tokens/s"] and eight.USD == 5040
now = plan.rankings[0].best_per_s
print(f"{now:.2f} tokens/s now, {gains[0][3]:.2f} with {gains[0][0]} in the place of {gains[0][1]}")
assert gains[0][:2] == ("mac-mini-m4-pro", "pi5") and 1.35 < gains[0][3] / now < 1.45
print(under_load.round(3))
assert under_load.good.is_monotonic_increasing
assert 0.75 < under_load.good.iloc[-1] < 0.9 and 0.4 < under_load.good.iloc[1] < 0.6
