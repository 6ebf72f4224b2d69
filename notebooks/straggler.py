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
# Eight Raspberry Pis on a gigabit switch, one of them (`n3`) three or ten times slower than the others. Who waits for
# it, and what does not waiting cost?

# %%
import simcluster

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
    jobs=1,  # such short runs end sooner than more processes begin
    report=False,
)
sweep.plot.time_to_target("topology.nodes.n3.straggler.factor")

# %% [markdown]
# ## Who waits
#
# The first steps with a factor of ten: with an all-reduce in every step seven of eight do little but wait.

# %%
barrier, server, backup, asynchronous = sweep.runs[2::3]
barrier.plot.timeline()

# %%
asynchronous.plot.timeline()

# %%
asynchronous.plot.staleness()

# %% [markdown]
# ## The answer
#
# With an all-reduce in every step a factor of ten costs a factor of four in time and of three and a half in energy:
# all wait for `n3`. A parameter server has a narrow door of its own, its network card, behind which a factor of three
# does not show at all, and ten costs 1.7. A server that goes on after seven of eight pushes does not notice, at the
# price of one gradient in eight. An asynchronous one loses a tenth: what comes late, up to 21 updates late, is taken
# as much less seriously.

# %%
print(sweep.table[[*sweep.columns, "time_to_target_s", "joules", "staleness_max"]].round(3).to_string())
barrier_s, server_s, backup_s, asynchronous_s = sweep.table.time_to_target_s.to_numpy().reshape(4, 3)
assert 4 < barrier_s[2] / barrier_s[0] < 4.6
assert server_s[1] == server_s[0] and 1.6 < server_s[2] / server_s[0] < 1.8
assert backup_s[2] < backup_s[0]
assert 1.05 < asynchronous_s[2] / asynchronous_s[0] < 1.15
assert sweep.table.staleness_max.iloc[-1] == 21
assert 3 < sweep.table.joules[2] / sweep.table.joules[0] < 4
