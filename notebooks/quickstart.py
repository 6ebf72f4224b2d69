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
# # One algorithm file, two backends
#
# Would asynchronous training beat a synchronous parameter server on three Mac minis and two Raspberry Pis? And what if
# one of the Pis were ten times slower? Ask the simulator; then run the very same files over TCP.

# %%
from pathlib import Path
from tempfile import mkdtemp

import plotly.graph_objects as go

import simcluster
from simcluster.results.compare import compare

runs = Path(mkdtemp())

# %% [markdown]
# ## Three algorithms on the shelf
#
# Every run trains a real network on real digits; only time is simulated.

# %%
algorithms = ["sync_ps", "edp", "all_reduce_dp"]
healthy = {name: simcluster.run("quickstart", algorithm=name, out=runs / name, report=False) for name in algorithms}
for name, run in healthy.items():
    print(f"{name:14} {run.summary['elapsed_s']:.3f} s  accuracy {run.summary['accuracy']:.3f}")

# %%
healthy["sync_ps"].plot.convergence(x="time")

# %% [markdown]
# ## One Pi ten times slower

# %%
slow_pi = {"topology.nodes.pi4.straggler": {"kind": "constant", "factor": 10}}
slowed = {
    name: simcluster.run("quickstart", algorithm=name, overrides=slow_pi, out=runs / f"{name}-slow", report=False)
    for name in ["sync_ps", "edp"]
}


def accuracy_over_time(run):
    rows = run.metrics[run.metrics.name == "eval_accuracy"]
    return rows.time_s, rows.value


figure = go.Figure(layout={"xaxis_title": "virtual seconds", "yaxis_title": "held-out accuracy"})
for name, run in slowed.items():
    time_s, accuracy = accuracy_over_time(run)
    figure.add_scatter(x=time_s, y=accuracy, name=name)
figure

# %%
for name, run in slowed.items():
    time_s, accuracy = accuracy_over_time(run)
    print(f"{name:8} reaches 0.88 after {time_s[accuracy >= 0.88].min():.3f} virtual seconds")

# %% [markdown]
# ## The same file over TCP
#
# One process per node on this machine. The weights are those of the simulation, to the bit.

# %%
real = simcluster.run("quickstart", backend="sockets", out=runs / "real", report=False)
print(compare(healthy["sync_ps"], real).describe())
assert real.summary["weights_sha256"] == healthy["sync_ps"].summary["weights_sha256"]
