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
# # Does the shape of the network matter if all its links are equal?
#
# Eight laptops and one kind of link, 100 Mbps and 1 ms each way: as a star around a switch, a ring, a chain, or a
# complete graph.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
experiment = {
    "name": "shapes",
    "topology": {"generator": "star", "workers": 8, "bandwidth": "100 Mbps", "latency": "1 ms"},
    "algorithm": "all_reduce_dp",
    "workload": {"name": "mnist_mlp", "hidden": 16},
    "stop": {"steps": 24},
    "evaluate_every": 2,
    "seed": 0,
}
# Runs this short end before more processes have started, so all of them are made in this one.
how = {"target": {"accuracy": 0.8}, "jobs": 1, "report": False}
shapes = {"topology.generator": ["star", "ring", "chain", "complete"]}
all_reduce = simcluster.sweep(experiment, shapes, out="runs/shapes", **how)

# %% [markdown]
# ## Loss against virtual seconds, steps, bytes
#
# An all-reduce around a ring. Over time the four networks make three curves (the ring lies under the complete graph),
# over steps and bytes only one.

# %%
all_reduce.plot.convergence(x="time")

# %%
all_reduce.plot.convergence(x="step")

# %%
all_reduce.plot.convergence(x="bytes")

# %% [markdown]
# ## Which shape for which algorithm?
#
# The same with a parameter server on the first laptop. The runs above are not repeated.

# %%
both = simcluster.sweep(experiment, {**shapes, "algorithm": ["all_reduce_dp", "sync_ps"]}, out="runs/shapes", **how)
both.plot.against("topology.generator", "time_to_target_s")

# %% [markdown]
# ## And the shape of the overlay?
#
# Without all-reduce or server each laptop averages with its neighbours in an overlay, whatever the wires are (a star
# here). Each has different digits now, and the shape of the overlay changes what is learned.

# %%
gossip = simcluster.sweep(
    experiment,
    {"algorithm.overlay": ["ring", "torus", "hypercube", "complete"]},
    sets=[
        "algorithm.name=d_psgd",
        "algorithm.order=step_then_mix",
        "algorithm.consensus_every=10",
        "workload.partition=dirichlet",
        "workload.alpha=0.1",
        "stop.steps=40",
    ],
    out="runs/overlays",
    **how,
)
gossip.plot.convergence(x="step", panel="accuracy")

# %%
gossip.plot.convergence(x="time", panel="accuracy")

# %%
gossip.runs[0].plot.consensus(x="step")  # the ring

# %%
both.table.pivot(index="topology.generator", columns="algorithm", values="time_to_target_s").round(3)

# %%
gossip.table[["algorithm.overlay", "accuracy", "bytes_sent", "elapsed_s"]].round(3)

# %% [markdown]
# ## The answer
#
# Yes: a shape is good for an algorithm. An all-reduce around a ring gains nothing from more than a ring of links,
# takes half as long again on a chain, and two thirds longer on a star, where each message crosses two links. A server
# with a link to every laptop is four times as fast as one on the ring, and twice as fast as any all-reduce.
#
# Wires change the time, never the result: for one algorithm the weights are the same on all four. Overlays change the
# result: after the same number of steps, more neighbours have learned more; the ring has sent a third of the bytes in
# half of the time.
