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
# # Is the prediction any better with measured numbers?
#
# A data sheet says what a cable and a device are meant to do. `simcluster calibrate` asks the cluster itself, with
# messages and work and nothing else.
#
# ## Where the truth is known
#
# First a cluster of which we know everything, because it is simulated: a cable that carries a third of what is printed
# on it and a Raspberry Pi that has become slow from heat. The data sheet knows neither.

# %%
import simcluster
from simcluster.calibrate import calibrate, calibrated_document, describe

sheet = {
    "name": "data sheet",
    "nodes": {"mini": {"device": "mac-mini-m4"}, "pi": {"device": "raspberry-pi-5"}},
    "links": [{"between": ["mini", "pi"], "type": "ethernet-1g"}],
}
truth = {
    "name": "truth",
    "nodes": {"mini": {"device": "mac-mini-m4"}, "pi": {"device": "raspberry-pi-5", "straggler": {"factor": 1.7}}},
    "links": [{"between": ["mini", "pi"], "bandwidth": "317 Mbps", "latency": "1.3 ms"}],
}
calibration = calibrate(truth, backend="sim")
print("\n".join(describe(calibration)))

# %%
measured = {**calibrated_document(calibration), "name": "measured"}
sweep = simcluster.sweep(
    "quickstart",
    {"topology": [truth, sheet, measured]},
    sets=["stop.steps=40"],
    target={"accuracy": 0.85},
    out="runs/measured",
    jobs=1,  # such short runs end sooner than more processes begin
    report=False,
)
sweep.plot.convergence(x="time")

# %% [markdown]
# ## For real
#
# Now over TCP: two processes of this machine, which the file takes for two Mac minis on Wi-Fi. It is calibrated, the
# run is predicted with the numbers that were found, and then made.

# %%
desk = {
    "name": "desk",
    "nodes": {"here": {"device": "mac-mini-m4"}, "there": {"device": "mac-mini-m4"}},
    "links": [{"between": ["here", "there"], "type": "wifi-5"}],
}
this_machine = calibrated_document(calibrate(desk))
wanted = {"topology": this_machine, "overrides": {"stop.steps": 40}, "report": False}
predicted = simcluster.run("quickstart", **wanted, out="runs/predicted")
real = simcluster.run("quickstart", **wanted, backend="sockets", out="runs/real")
compared = simcluster.compare(predicted, real)
print(compared.describe())

# %%
compared.plot.predicted_measured()

# %% [markdown]
# ## The answer
#
# Where the truth is known: by the data sheet the run takes less than half of what it takes; with the measured numbers
# the prediction is right to a thousandth. On real nodes it is as good as the machine is quiet: the nodes here share
# its cores with each other and with this notebook, so look at the figure, and see docs/fidelity.md for hosts that
# share nothing. What does not depend on any clock is the same to the bit.

# %%
elapsed_s = dict(zip(["truth", "sheet", "measured"], sweep.table.elapsed_s, strict=True))
print(elapsed_s)
assert elapsed_s["sheet"] < 0.5 * elapsed_s["truth"]
assert abs(elapsed_s["measured"] / elapsed_s["truth"] - 1) < 0.001
assert all("mnist_mlp/gradient" in node["profile"] for node in this_machine["nodes"].values())
assert this_machine["links"][0]["latency"] != "2 ms"
assert real.summary["weights_sha256"] == predicted.summary["weights_sha256"]
assert real.summary["bytes_sent"] == predicted.summary["bytes_sent"]
