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
# Four Raspberry Pis, each with digits of its own (Dirichlet, alpha 0.1), around a switch of which we know neither
# bandwidth nor latency yet. Who is first at 75 % of all digits: an all-reduce in every step, gossip with two
# neighbours in every step, or DiLoCo, which talks once in eight steps?

# %%
import simcluster

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
    jobs=1,  # such short runs end sooner than more processes begin
    report=False,
)
sweep.plot.winner(x="topology.bandwidth", y="topology.latency", of="algorithm")

# %% [markdown]
# A colour for who is first, a number for how many times sooner than the next.
#
# ## Why
#
# Learning is the same in every cell, since none of the three depends on who comes first; what differs is what a step
# takes.

# %%
sweep.plot.convergence(x="step", panel="accuracy", by="algorithm")

# %% [markdown]
# ## The answer
#
# On a slow wire DiLoCo, whatever the latency: it needs two and a half times as many steps as all-reduce, and sends an
# eighth of the bytes in as many. On a fast wire with next to no latency all-reduce, which learns most in a step. On a
# fast wire with latency gossip: it waits for one message a step, where the ring of the all-reduce waits for six, one
# after the other.

# %%
name = sweep.table.algorithm.str.split().str[0]  # without its settings
sooner = sweep.table.assign(algorithm=name).sort_values("time_to_target_s")
first = sooner.groupby(["topology.latency_s", "topology.bandwidth_bps"]).algorithm.first().unstack()
print(first)
assert (first[1e7] == "diloco").all()
assert first.loc[20e-6, 1e10] == "all_reduce_dp"
assert (first.loc[[1e-3, 0.02], 1e10] == "d_psgd").all()
sent = sweep.table.groupby(name).bytes_sent.first()
assert 7.5 < sent["all_reduce_dp"] / sent["diloco"] < 8.5
