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
# # What should I buy to make training faster?
#
# The shelf of the quickstart, three Mac minis and two Raspberry Pis, with one bad cable: 200 Mbps in place of a
# gigabit. `whatif` changes one part at a time, runs every variant in the simulator, and tries the parts of a price
# list.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
bad_cable = {"topology.links.pi5-mini1.bandwidth": "200 Mbps", "stop.steps": 20}
how = {"seeds": 1, "jobs": 1, "report": False}  # without stragglers and jitter all seeds give the same times
found = simcluster.whatif("quickstart", "step-time", overrides=bad_cable, out="runs/what-to-buy", **how)
print(found.answer)

# %%
found.plot.tornado()

# %% [markdown]
# ## What the price list offers
#
# The list is `topologies/parts.yaml`; `parts="mine.yaml"` names another one.

# %%
offers = found.table[found.table.kind == "purchase"]
offers[["change", "price_usd", "value", "relative"]].round(4)

# %% [markdown]
# ## And after that purchase?
#
# The bottleneck moves. The same question for the shelf with a good cable:

# %%
good_cable = {"stop.steps": 20}
then = simcluster.whatif("quickstart", "step-time", overrides=good_cable, out="runs/what-to-buy-next", **how)
print(then.answer)

# %%
then.plot.path()

# %% [markdown]
# ## The answer
#
# A gigabit cable for the Pi 5, 30 USD: a step takes 9.3 ms instead of 33.5 ms, 72 % less. A faster cable for twice the
# price gains no more, and a faster device next to nothing. After that the bottleneck is the cable of the Pi 4, and the
# next purchase gains only 15 %. Without a purchase, leaving the Pi 5 out is as fast.
