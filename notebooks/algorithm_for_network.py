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
# # Which algorithm for which network?
#
# Four Raspberry Pis around a switch, each with different digits (Dirichlet, alpha 0.1). Neither the bandwidth nor the
# latency of the switch is known yet. Which algorithm is the first to recognise 75 % of all digits: an all-reduce in
# every step, gossip with two neighbours in every step, or DiLoCo, which communicates once in eight steps?

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
        "name": "networks",
        "topology": {"generator": "star", "workers": 4, "device": "raspberry-pi-4"},
        "algorithm": "all_reduce_dp",
        "workload": {
            "name": "mnist_mlp",
            "hidden": 16,
            "learning_rate": 0.2,
            "partition": "dirichlet",
            "alpha": 0.1,
        },
        "stop": {"steps": 40},
        "evaluate_every": 4,
        "seed": 0,
    },
    {
        "algorithm": [
            {"name": "all_reduce_dp"},
            {"name": "d_psgd", "order": "step_then_mix"},
            {"name": "diloco", "interval": 8},
        ],
        "topology.bandwidth": ["10 Mbps", "100 Mbps", "10 Gbps"],
        "topology.latency": ["20 us", "1 ms", "20 ms"],
    },
    target={"accuracy": 0.75},
    out="runs/networks",
    jobs=1,  # runs this short end before more processes have started
    report=False,
)
sweep.plot.winner(x="topology.bandwidth", y="topology.latency", of="algorithm")

# %% [markdown]
# The colour is the fastest algorithm, the number its lead over the second.
#
# ## Why
#
# Learning is the same on every network, since none of the three depends on the order in which messages arrive. What
# differs is the time of a step.

# %%
sweep.plot.convergence(x="step", panel="accuracy", by="algorithm")

# %% [markdown]
# ## The answer
#
# On a slow wire, DiLoCo, whatever the latency: it needs two and a half times as many steps as the all-reduce, and
# sends an eighth of the bytes per step. On a fast wire with hardly any latency, the all-reduce, which learns most per
# step. On a fast wire with latency, gossip: it waits for one message per step, while the ring all-reduce waits for
# six, one after the other.
