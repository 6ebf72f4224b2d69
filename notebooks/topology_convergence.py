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
# # Does the shape of the network matter, if all of its links are equal?
#
# Eight laptops and one kind of link, 100 Mbps and 1 ms each way, as a star around a switch, a ring, a chain, or each
# with each.

# %%
import simcluster

experiment = {
    "name": "shapes",
    "topology": {"generator": "star", "workers": 8, "bandwidth": "100 Mbps", "latency": "1 ms"},
    "algorithm": "all_reduce_dp",
    "workload": {"name": "mnist_mlp", "hidden": 16},
    "stop": {"steps": 24},
    "evaluate_every": 2,
    "seed": 0,
}
# Runs this short end sooner than more processes begin, so all of them run in this one.
how = {"target": {"accuracy": 0.8}, "jobs": 1, "report": False}
shapes = {"topology.generator": ["star", "ring", "chain", "complete"]}
all_reduce = simcluster.sweep(experiment, shapes, out="runs/shapes", **how)

# %% [markdown]
# ## Loss against virtual seconds, steps, bytes
#
# An all-reduce around a ring: four networks, three courses in time (the ring lies under the last), and one in steps
# and bytes.

# %%
all_reduce.plot.convergence(x="time")

# %%
all_reduce.plot.convergence(x="step")

# %%
all_reduce.plot.convergence(x="bytes")

# %% [markdown]
# ## Which shape for which algorithm?
#
# The same with a parameter server on the first laptop. The runs above are not made again.

# %%
both = simcluster.sweep(experiment, {**shapes, "algorithm": ["all_reduce_dp", "sync_ps"]}, out="runs/shapes", **how)
both.plot.against("topology.generator", "time_to_target_s")

# %% [markdown]
# ## And who talks with whom?
#
# Without all-reduce or server each laptop averages with its neighbours in an overlay, whatever the wires are (a star
# here). Each has digits of its own now, and the shape of the overlay changes what is learned.

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

# %% [markdown]
# ## The answer
#
# Yes: a shape is good for an algorithm. An all-reduce around a ring gains nothing from more than a ring of links, and
# takes half as long again on a chain, and two thirds more behind a switch, where each message crosses two links. A
# server with a link to everyone is four times as fast as one on the ring, and twice as fast as any all-reduce.
#
# Wires change when, never what: of one algorithm the weights are the same on all four. Overlays change what: after as
# many steps, more neighbours have learned more; the ring has sent a third of the bytes in half of the time.

# %%
time_s = both.table.set_index(["algorithm", "topology.generator"]).time_to_target_s
print(time_s.round(3).unstack())
ring, server = time_s["all_reduce_dp"], time_s["sync_ps"]
assert ring["complete"] == ring["ring"]
assert 1.4 < ring["chain"] / ring["ring"] < 1.6 < ring["star"] / ring["ring"] < 1.75
assert server["ring"] / server["complete"] > 3.5
assert ring.min() / server["complete"] > 2
assert (both.table.groupby("algorithm").weights_sha256.nunique() == 1).all()

neighbours = gossip.table.set_index("algorithm.overlay")
print(neighbours[["accuracy", "bytes_sent", "elapsed_s"]])
assert neighbours.accuracy.is_monotonic_increasing
assert neighbours.bytes_sent["ring"] < 0.35 * neighbours.bytes_sent["complete"]
assert neighbours.elapsed_s["ring"] < 0.5 * neighbours.elapsed_s["complete"]
