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
# # How well does a prediction hold on this machine?
#
# Calibrate this machine, predict three algorithms on it in the simulator, run them over TCP, and compare. Three
# processes of one machine share its cores, and the topology says so.
#
# Every time below was measured, and yours will differ: these come from two cores shared with other work, under a load
# of about 17.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
import pandas as pd
import plotly.express as px

from simcluster.lab.calibrate import calibrate, calibrated_document, describe
from simcluster.lab.reports.figure_style import TEMPLATE

px.defaults.template = TEMPLATE

# %% [markdown]
# ## Calibrate
#
# Calibration takes twenty rounds of messages and work. The result is a topology, as a mapping.

# %% tags=["measured"]
calibration = calibrate(simcluster.Topology.load("this-machine").document)
here = {**calibrated_document(calibration), "name": "here"}
print("\n".join(describe(calibration)))

# %% [markdown]
# ## Predict and measure
#
# The same experiment twice, on two backends.

# %% tags=["measured"]
rows, pairs = [], []
for algorithm in ("sync_ps", "all_reduce_dp", "local_sgd"):
    wanted = {"topology": here, "algorithm": algorithm, "overrides": {"stop.steps": 60}, "report": False}
    predicted = simcluster.run("quickstart", **wanted, out=f"runs/here/{algorithm}-predicted")
    measured = simcluster.run("quickstart", **wanted, backend="sockets", out=f"runs/here/{algorithm}-measured")
    pairs.append((predicted, measured))
    rows += [(algorithm, "predicted", predicted.summary["elapsed_s"])]
    rows += [(algorithm, "measured", measured.summary["elapsed_s"])]
times = pd.DataFrame(rows, columns=["algorithm", "time of", "seconds"])
px.bar(times, x="algorithm", y="seconds", color="time of", barmode="group", height=360)

# %% [markdown]
# ## Where a prediction was wrong
#
# Predicted against measured times of every phase of every node, for the parameter server.

# %% tags=["measured"]
simcluster.compare(*pairs[0]).plot.predicted_measured()

# %% [markdown]
# ## What no clock decides

# %%
[predicted.summary["weights_sha256"] == measured.summary["weights_sha256"] for predicted, measured in pairs]

# %% [markdown]
# ## The answer
#
# Predicted weights, messages and bytes are exact. How good the times are depends on how quiet the machine is: these
# nodes share its cores with each other, with this notebook and with whatever else runs. Under the load of the stored
# outputs, real runs took three to six times as long as predicted. All of the excess was waiting: work took as long as
# predicted. `docs/fidelity.md` has the numbers for nodes that share nothing, and what a busy machine does to them.
