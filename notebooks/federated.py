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
# # How often must ten phones average if each has other data?
#
# Federated averaging: ten small devices on a slow network, half of them drawn per round, and averages weighted by the
# number of samples. Each has its own mixture of digits, from nearly equal ones (Dirichlet, alpha 100) to one or two
# digits per device (alpha 0.05).

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
        "name": "federated",
        "topology": {
            "generator": "star",
            "workers": 10,
            "device": "raspberry-pi-4",
            "bandwidth": "20 Mbps",
            "latency": "10 ms",
        },
        "algorithm": {"name": "local_sgd", "participation": 0.5, "weighting": "samples"},
        "workload": {
            "name": "mnist_mlp",
            "hidden": 16,
            "learning_rate": 0.1,
            "partition": "dirichlet",
            "alpha": 0.1,
            "batch_size": 16,
        },
        "stop": {"steps": 80},
        "evaluate_every": 4,
        "seed": 0,
    },
    {"workload.alpha": [0.05, 0.3, 100], "algorithm.interval": [1, 4, 16]},
    target={"accuracy": 0.8},
    out="runs/federated",
    jobs=1,  # runs this short end before more processes have started
    report=False,
)
sweep.plot.time_to_target("algorithm.interval")

# %% [markdown]
# ## The accuracy after 80 steps

# %%
sweep.table.pivot(index="algorithm.interval", columns="workload.alpha", values="accuracy").round(2)

# %% [markdown]
# ## The way there, averaged over the three mixtures

# %%
sweep.plot.convergence(x="step", panel="accuracy", by="algorithm.interval")

# %% [markdown]
# ## The answer
#
# With equal data an average every 16 steps is best: it reaches 80 % after 1.6 s, where averaging in every step takes
# 11.5 s. With an uneven mixture (alpha 0.3) every 4 steps is best, with 5.6 s, and 16 do not reach 80 % within 80
# steps. With one or two digits per device only an average in every step reaches it, after 16 s: between two averages a
# device learns only about its own digits. The bytes fall by the same factor as the interval grows, so dissimilar data
# costs network traffic.
