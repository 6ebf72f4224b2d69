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
# # Why did two runs with one seed end differently?
#
# An asynchronous parameter server applies gradients in the order in which they arrive, and on real nodes that order is
# never the same twice. A run on sockets records it, so that the run can be repeated in the simulator, event by event.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
from simcluster.lab.replays.whatif import what_if

how = {"algorithm": "edp", "backend": "sockets", "overrides": {"stop.steps": 30, "evaluate_every": 2}, "report": False}

# %% [markdown]
# ## Twice over TCP

# %% tags=["measured"]
first = simcluster.run("quickstart", **how, out="runs/replayed/first")
second = simcluster.run("quickstart", **how, out="runs/replayed/second")
simcluster.compare(first, second)

# %% [markdown]
# ## How stale the updates were
#
# Staleness counts the updates that the server applied while a worker computed its own.

# %% tags=["measured"]
first.plot.staleness()

# %% [markdown]
# ## Replayed
#
# The same code, in the simulator, in the recorded order. Every message is compared with the recorded one by checksum.

# %%
replayed = simcluster.replay(first, out="runs/replayed/replay").run
same = replayed.summary["weights_sha256"] == first.summary["weights_sha256"]
print("The replay ends with the weights of the first run:", same)

# %% [markdown]
# ## The same work on another network
#
# What would the first run have taken if the link of the Pi 5 were ten times slower?

# %% tags=["measured"]
changed = what_if(first, {"topology.links.pi5-mini1.bandwidth": "94 Mbps"})
print(changed.in_words())

# %% [markdown]
# ## The answer
#
# Because their messages arrived in a different order. Seed, code and data were the same; only the order differed, and
# with it the staleness of the updates. The recorded order is enough to repeat the first run to the bit, in one
# process, where prints and a debugger work.
