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
# # What does a Raspberry Pi add to three Mac minis?
#
# The shelf of the quickstart with and without each of its Pis. A Pi brings two more hands, and a slow link and slow
# hands to wait for.

# %%
import simcluster
from simcluster.topology import load

shelf = load("smolcluster").document


def without(name, *pis):
    nodes = {node: about for node, about in shelf["nodes"].items() if node not in pis}
    links = [link for link in shelf["links"] if not {*link["between"]} & {*pis}]
    return {**shelf, "name": name, "nodes": nodes, "links": links}


shelves = [
    without("three Macs", "pi5", "pi4"),
    without("and a Pi 5", "pi4"),
    without("and a Pi 4", "pi5"),
    without("and both"),
]
sweep = simcluster.sweep(
    "quickstart",
    {"topology": shelves, "algorithm": ["sync_ps", "edp"]},
    sets=["stop.steps=40", "evaluate_every=3"],
    target={"accuracy": 0.85},
    out="runs/adding-a-pi",
    jobs=1,  # such short runs end sooner than more processes begin
    report=False,
)
sweep.plot.against("topology", "time_to_target_s")

# %% [markdown]
# ## And on the bill
#
# What the wall gives until then, with a server that waits for all.

# %%
waiting = simcluster.sweep(
    "quickstart",
    {"topology": shelves},
    sets=["stop.steps=40", "evaluate_every=3"],
    target={"accuracy": 0.85},
    out="runs/adding-a-pi",  # what has run there is not run again
    jobs=1,
    report=False,
)
waiting.plot.convergence(x="energy", panel="accuracy")

# %%
waiting.runs[-1].plot.topology()

# %% [markdown]
# ## If they are there already: what holds them up?

# %%
found = simcluster.whatif("quickstart", "step-time", sets=["stop.steps=3"], out="runs/whatif", jobs=1, report=False)
print(found.answer)

# %% [markdown]
# ## The answer
#
# Nothing but waiting, in this task, where three Macs have work for milliseconds: with a server that waits for all,
# 85 % takes 3.4 times as long with a Pi 5, 4 times with a Pi 4, and no longer with both, since they wait at the same
# time; and as many steps take about three times the energy or more. An asynchronous server loses less, and gains
# nothing either. It is not their arithmetic but their cable: the bottleneck is the gigabit link of the Pi 4.

# %%
table = sweep.table.set_index(["algorithm", "topology"])
print(table[["time_to_target_s", "joules"]].round(3))
times = table.time_to_target_s["sync_ps"] / table.time_to_target_s["sync_ps", "three Macs"]
assert 3.3 < times["and a Pi 5"] < 3.5 and 3.9 < times["and a Pi 4"] < 4.1
assert times["and both"] == times["and a Pi 4"]
assert (table.joules["sync_ps"].iloc[1:] > 2.8 * table.joules["sync_ps", "three Macs"]).all()
hurried = table.time_to_target_s["edp"] / table.time_to_target_s["edp", "three Macs"]
assert hurried.iloc[1:].between(1, 2.5, inclusive="neither").all()
assert found.bottleneck.change.part == "pi4-mini3"
