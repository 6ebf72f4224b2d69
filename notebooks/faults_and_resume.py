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
# # What does a lost node cost, and what is left after a stop?
#
# Four laptops train with an all-reduce in every step. One crashes, or hangs, or crashes and starts again; then the
# whole run is stopped in the middle and resumed.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
import pandas as pd

from simcluster.lab.reports.plots import convergence

experiment = {
    "name": "faults",
    "topology": {"generator": "star", "workers": 4, "bandwidth": "1 Gbps", "latency": "200 us"},
    "algorithm": "all_reduce_dp",
    "workload": {"name": "mnist_mlp", "hidden": 16, "learning_rate": 0.05},
    "stop": {"steps": 60},
    "evaluate_every": 3,
    "checkpoint": {"every": 20},
}
well = simcluster.run(experiment, name="no fault", out="runs/faults/none", report=False)
half_s = well.summary["elapsed_s"] / 2

# %% [markdown]
# ## Three faults of `n3`, each at half of the run

# %%
with simcluster.faults() as plan:
    plan.crash("n3", at_s=half_s)
    crashed = simcluster.run(experiment, name="crash", out="runs/faults/crash", report=False)
with simcluster.faults() as plan:
    plan.restart("n3", at_s=half_s, after_s=0.02)
    restarted = simcluster.run(experiment, name="restart", out="runs/faults/restart", report=False)
with simcluster.faults() as plan:
    plan.hang("n3", at_s=half_s, for_s=0.05)
    hung = simcluster.run(experiment, name="hang", out="runs/faults/hang", report=False)
runs = [well, crashed, restarted, hung]
figure = convergence(runs, "time", ("accuracy",))
figure.for_each_trace(lambda line: line.update(name=line.name.split(",")[0]))  # the name of the experiment is enough

# %%
rows = [
    (run.summary["name"], 1000 * run.summary["elapsed_s"], run.summary["accuracy"], run.summary["samples"]["lost"])
    for run in runs
]
table = pd.DataFrame(rows, columns=["fault", "time, ms", "accuracy", "lost samples"])
table.round(3)

# %% [markdown]
# ## The crash, span by span
#
# The bands are the faults. After the crash the other three form a new group and continue.

# %%
crashed.plot.timeline(half_s - 0.01, half_s + 0.02)

# %% [markdown]
# ## Stopped and resumed
#
# A run of 40 steps that is resumed to 60 ends with the weights of one that was never stopped.

# %%
stopped = simcluster.run(experiment, stop={"steps": 40}, out="runs/faults/stopped", report=False)
resumed = simcluster.resume(stopped, overrides={"stop.steps": 60}, out="runs/faults/resumed", report=False)
print("the same weights:", resumed.summary["weights_sha256"] == well.summary["weights_sha256"])

# %% [markdown]
# ## The answer
#
# Little, and everything. A hang costs its own length, 50 ms, since all others wait. After a crash the three survivors
# finish even sooner than four would, because the ring is shorter, but train on fewer samples: the accuracy is the same
# within half a percent. A node that starts again is admitted, and rejoins with the others' weights. And a stopped run
# resumes to the weights of one that was never stopped, bit for bit.
