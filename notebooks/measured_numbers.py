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
# # Is a prediction better with measured numbers?
#
# A data sheet says what a cable and a device are meant to do. `simcluster calibrate` measures the cluster itself,
# using only messages and work.
#
# Its accuracy can be checked where the truth is known: on a simulated cluster. A cable there carries a third of its
# rated bandwidth, and a Raspberry Pi is slowed by heat. The data sheet shows neither.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
from simcluster.lab.calibrate import calibrate, calibrated_document, describe

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

# %% [markdown]
# ## What calibration finds

# %%
calibration = calibrate(truth, backend="sim")
print("\n".join(describe(calibration)))

# %% [markdown]
# ## The same training, predicted with each
#
# The curve of the truth is hidden under that of the measured numbers.

# %%
measured = {**calibrated_document(calibration), "name": "measured"}
sweep = simcluster.sweep(
    "quickstart",
    {"topology": [truth, sheet, measured]},
    sets=["stop.steps=40"],
    target={"accuracy": 0.85},
    out="runs/measured",
    jobs=1,  # runs this short end before more processes have started
    report=False,
)
sweep.plot.convergence(x="time")

# %%
elapsed_s = sweep.table.set_index("topology").elapsed_s
(elapsed_s / elapsed_s["truth"] - 1).map("{:+.2%}".format).rename("error of the prediction").to_frame()

# %% [markdown]
# ## The answer
#
# Yes. The data sheet predicts less than half of the time that the run takes; the measured numbers predict it to a
# thousandth. How well that works on real machines is another question: the notebook `this_machine` answers it for
# yours.
