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
# The shelf of the quickstart with and without each of its Pis. A Pi adds a worker, and also a slow link and a slow
# processor to wait for.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
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
    jobs=1,  # runs this short end before more processes have started
    report=False,
)
sweep.plot.against("topology", "time_to_target_s")

# %% [markdown]
# ## The energy
#
# The energy that all devices draw until then, with a server that waits for every worker.

# %%
waiting = simcluster.sweep(
    "quickstart",
    {"topology": shelves},
    sets=["stop.steps=40", "evaluate_every=3"],
    target={"accuracy": 0.85},
    out="runs/adding-a-pi",  # finished runs are not repeated
    jobs=1,
    report=False,
)
waiting.plot.convergence(x="energy", panel="accuracy")

# %%
waiting.runs[-1].plot.topology()

# %% [markdown]
# ## What is the bottleneck?
#
# One change at a time, to every link and every device.

# %%
found = simcluster.whatif("quickstart", "step-time", sets=["stop.steps=3"], out="runs/whatif", jobs=1, report=False)
print(found.answer)

# %%
found.plot.tornado()

# %%
sweep.table.pivot(index="topology", columns="algorithm", values=["time_to_target_s", "joules"]).round(3)

# %% [markdown]
# ## The answer
#
# Nothing but waiting, in a task for which three Macs compute only for milliseconds. With a server that waits for every
# worker, reaching 85 % takes 3.4 times as long with a Pi 5 and 4 times with a Pi 4. Both together cost no more than
# the Pi 4 alone, because they wait at the same time. The same number of steps takes about three times the energy or
# more.
#
# An asynchronous server (`edp`) loses less, but gains nothing either. The bottleneck is not the arithmetic of the Pis
# but a cable: the gigabit link of the Pi 4.
