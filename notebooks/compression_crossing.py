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
# # Above which bandwidth does compression no longer pay?
#
# Compression saves bytes, takes time, and loses a part of the gradient. Four laptops around a switch: which compressor
# wins depends on the bandwidth.

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
        "name": "compression",
        "topology": {"generator": "star", "workers": 4},
        "algorithm": "all_reduce_dp",
        "workload": {"name": "mnist_mlp", "hidden": 32},
        "stop": {"steps": 20},
        "evaluate_every": 2,
        "seed": 0,
    },
    {
        "algorithm.compression": ["none", "int8", "top_k", "power_sgd"],
        "topology.bandwidth": ["10 Mbps", "100 Mbps", "1 Gbps", "10 Gbps"],
    },
    target={"accuracy": 0.75},
    out="runs/compression",
    jobs=1,  # runs this short end before more processes have started
    report=False,
)
sweep.plot.time_to_target("topology.bandwidth")

# %% [markdown]
# ## What is lost

# %%
sweep.plot.convergence(x="step", panel="accuracy", by="algorithm.compression")

# %%
crossings = [place for place in sweep.plot.crossings("topology.bandwidth") if place.after == "compression none"]
{place.before: f"pays up to {place.place:,.0f} Mbps" for place in crossings}

# %% [markdown]
# ## The answer
#
# The largest hundredth (`top_k`) pays up to 4.7 Gbps, one byte per number (`int8`) up to 3.2 Gbps, two factors
# (`power_sgd`) up to 440 Mbps. At ten gigabits nothing pays.
#
# Below that, `top_k` is the fastest at every bandwidth here, although it needs 18 steps where the whole gradient needs
# 10. `int8` needs 10 as well, with a quarter of the bytes. `power_sgd` sends a thirteenth of the bytes, but its
#     arithmetic doubles the time of a step if the wire is not the bottleneck.
