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
# # What does one straggler among eight cost?
#
# Eight Raspberry Pis on a gigabit switch, one of them (`n3`) three or ten times slower than the others. Which
# algorithms wait for it, and what does it cost not to wait?

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
sweep = simcluster.sweep(
    {
        "name": "straggler",
        "topology": {"generator": "star", "workers": 8, "device": "raspberry-pi-4"},
        "algorithm": "all_reduce_dp",
        "workload": {"name": "mnist_mlp", "hidden": 16, "learning_rate": 0.05},
        "stop": {"steps": 30},
        "evaluate_every": 2,
        "seed": 0,
    },
    {
        "algorithm": [
            {"name": "all_reduce_dp"},
            {"name": "sync_ps"},
            {"name": "sync_ps", "wait_for": 7},
            {"name": "edp", "damping": "inverse"},
        ],
        "topology.nodes.n3.straggler.factor": [1, 3, 10],
    },
    target={"accuracy": 0.75},
    out="runs/straggler",
    jobs=1,  # runs this short end before more processes have started
    report=False,
)
sweep.plot.time_to_target("topology.nodes.n3.straggler.factor")

# %% [markdown]
# ## Waiting
#
# Here are the first steps with a factor of ten. With an all-reduce in every step, seven of the eight do little but
# wait.

# %%
barrier, server, backup, asynchronous = sweep.runs[2::3]
barrier.plot.timeline()

# %% [markdown]
# An asynchronous server, and the staleness of the updates that it applies:

# %%
asynchronous.plot.timeline()

# %%
asynchronous.plot.staleness()

# %%
factor = "topology.nodes.n3.straggler.factor"
sweep.table.pivot(index="algorithm", columns=factor, values=["time_to_target_s", "joules"]).round(3)

# %% [markdown]
# ## The answer
#
# With an all-reduce in every step, a factor of ten costs a factor of four in time and three and a half in energy: all
# ranks wait for `n3`. A parameter server has another bottleneck, its network card, so a factor of three does not show
# at all, and a factor of ten costs 1.7. A server that continues after seven of eight pushes does not notice, at the
# price of one gradient in eight. An asynchronous one loses a tenth: what arrives late, up to 21 updates late, is
# scaled down.
