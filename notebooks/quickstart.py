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
# # Is the simulation the same program as the real thing?
#
# Would asynchronous training beat a synchronous parameter server on three Mac minis and two Raspberry Pis? And if one
# of the Pis were ten times slower? Ask the simulator; then run the same files over TCP.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %% [markdown]
# ## Three algorithms on the shelf
#
# Every run trains a real network on real digits; only time is simulated.

# %%
# Runs this short end before more processes have started, so all of them are made in this one.
how = {"target": {"accuracy": 0.88}, "jobs": 1, "report": False}
healthy = simcluster.sweep(
    "quickstart",
    {"algorithm": ["sync_ps", "edp", "all_reduce_dp"]},
    sets=["stop.steps=60"],
    **how,
    out="runs/quickstart",
)
healthy.table[["algorithm", "elapsed_s", "accuracy", "time_to_target_s"]]

# %%
healthy.plot.convergence(x="time", panel="accuracy")

# %% [markdown]
# ## One Pi ten times slower

# %%
slowed = simcluster.sweep(
    "quickstart",
    {"algorithm": ["sync_ps", "edp", "all_reduce_dp"]},
    sets=["stop.steps=60", "topology.nodes.pi4.straggler.factor=10"],
    **how,
    out="runs/quickstart-slow-pi",
)
slowed.plot.convergence(x="time", panel="accuracy")

# %% [markdown]
# ## The same file over TCP
#
# One process per node on this machine. Its times are not those of the shelf; everything else is the same.

# %% tags=["measured"]
predicted = healthy.runs[0]
real = simcluster.run("quickstart", backend="sockets", overrides={"stop.steps": 60}, out="runs/quickstart-real")
simcluster.compare(predicted, real)

# %% [markdown]
# ## The answer
#
# Yes: it ends with the same weights, to the bit, after equally many messages and bytes. And asynchronous training
# (`edp`) is more than ten times as fast to 88 % as the parameter server that waits, with or without a slow Pi: the
# Mac that serves also trains, and waits for no other node.
