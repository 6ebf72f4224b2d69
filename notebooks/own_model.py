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
# # How much faster do more laptops train my model?
#
# A small convolutional network of your own, on data of your own, on one to eight laptops around a switch. Both are
# ordinary torch. The simulator trains the network for real, and counts how long its layers take on each device.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
import plotly.express as px
import torch
from torch import nn

from simcluster.lab.reports.figure_style import TEMPLATE
from simcluster.workloads import adamw

px.defaults.template = TEMPLATE

# %% [markdown]
# ## The data
#
# 1,600 noisy pictures of a disc, a square or a cross. Tensors, a `Dataset`, a `DataLoader` or a list of pairs will do.

# %%
NAMES, SIDE = ("disc", "square", "cross"), 24


def pictures(count: int = 1600) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    centre = torch.randint(9, 15, (count, 2, 1, 1), generator=generator)
    dx, dy = (x - centre[:, 0]).abs(), (y - centre[:, 1]).abs()
    radius = torch.randint(4, 8, (count, 1, 1), generator=generator)
    disc = dx**2 + dy**2 <= radius**2
    square = torch.maximum(dx, dy) < radius
    cross = (torch.minimum(dx, dy) < 2) & (torch.maximum(dx, dy) <= radius)
    label = torch.arange(count) % 3
    shape = torch.stack([disc, square, cross])[label, torch.arange(count)].float()
    return (shape + 0.3 * torch.randn(count, SIDE, SIDE, generator=generator)).unsqueeze(1), label


inputs, labels = pictures()
rows = [inputs[first : first + 6, 0].permute(1, 0, 2).flatten(1) for first in (0, 6)]
px.imshow(torch.cat(rows).numpy(), color_continuous_scale="gray", height=300).update_layout(coloraxis_showscale=False)

# %% [markdown]
# ## The model
#
# `model` is a function, since every rank makes one; all start from the same weights. `batch_size` is a keyword, so it
# is a setting of the workload: the samples of one rank in one step.


# %%
def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, len(NAMES))),
    )


def shapes(*, batch_size: int = 128) -> simcluster.Workload:
    return simcluster.Workload(
        model=network,
        loss=nn.functional.cross_entropy,
        train=(inputs[400:], labels[400:]),
        test=(inputs[:400], labels[:400]),
        optimizer=adamw(0.005),
        batch_size=batch_size,
    )


# %% [markdown]
# ## One to eight laptops
#
# The joined batch stays at 128 samples, so all of them learn the same; only the time of a step differs.

# %%
sweep = simcluster.sweep(
    {
        "name": "own-model",
        "topology": {"generator": "star", "workers": 1, "bandwidth": "1 Gbps", "latency": "100 us"},
        "algorithm": "all_reduce_dp",
        "workload": shapes,
        "stop": {"steps": 60},
        "evaluate_every": 4,
    },
    pairs=["topology.workers=1,2,4,8", "workload.batch_size=128,64,32,16"],
    target={"accuracy": 0.8},
    jobs=1,
    report=False,
    out="runs/own-model",
)
sweep.plot.speedup("topology.workers", by="elapsed_s")

# %%
sweep.plot.convergence(x="time", panel="accuracy", by="topology.workers")

# %%
sweep.table[["topology.workers", "elapsed_s", "time_to_target_s", "accuracy"]].round(3)

# %% [markdown]
# ## The answer
#
# Two laptops finish the 60 steps 1.2 times as fast as one; four are no faster than one, and eight are slower. A step
# of this network takes 2.8 ms on one laptop. Two halve that, and their all-reduce adds most of it again; with eight,
# 14 messages one after the other take longer than the arithmetic. More laptops pay for a larger model, a larger batch,
# or an algorithm that communicates less often.
