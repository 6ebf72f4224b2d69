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
# # Is my algorithm correct, if its loss falls?
#
# Here are two algorithms of your own, each in a cell. Both are meant to be data-parallel SGD: N ranks should do what
# one process does on the joined batch. One of them has a bug.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
import simcluster
from simcluster import Replica, Transport
from simcluster.algorithms import steps
from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.lab.verify.claim import Claim, Identity


async def parallel_sgd(node: Transport, replica: Replica) -> None:
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        total = await ring_all_reduce(node, flatten(gradients), f"gradients/{step}")
        mean = unflatten(total / node.size, gradients)
        await node.compute(replica.apply, mean, cost=replica.apply_cost())
        node.record(step=step, loss=loss)


async def summed_sgd(node: Transport, replica: Replica) -> None:
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        total = await ring_all_reduce(node, flatten(gradients), f"gradients/{step}")
        await node.compute(replica.apply, unflatten(total, gradients), cost=replica.apply_cost())
        node.record(step=step, loss=loss)


# %% [markdown]
# ## The losses say nothing

# %%
sweep = simcluster.sweep(
    {
        "name": "verified",
        "topology": {"generator": "star", "workers": 4},
        "algorithm": parallel_sgd,
        "workload": {"name": "mnist_mlp", "hidden": 16, "learning_rate": 0.05},
        "stop": {"steps": 40},
        "evaluate_every": 2,
    },
    {"algorithm": [parallel_sgd, summed_sgd]},
    jobs=1,
    report=False,
    out="runs/verified",
)
sweep.plot.convergence(x="step")

# %% [markdown]
# ## The laws do
#
# A claim is a statement that can be checked: here, that N ranks equal one process. Laws that hold for every algorithm
# need no claim.

# %%
claim = Claim(
    paper="data-parallel SGD",
    identities=[Identity({}, "one process", why="the mean of the ranks' gradients is that of the joined batch")],
    replicas_agree=True,
)
correct = simcluster.verify(parallel_sgd, claim=claim, quick=True, backend="sim")
correct

# %%
wrong = simcluster.verify(summed_sgd, claim=claim, quick=True, backend="sim")
for check in wrong.failed:
    print(f"{check.name}: {check.reason}")

# %% [markdown]
# ## The answer
#
# A falling loss does not show it: the wrong algorithm learns faster here. It applies the sum of the gradients instead
# of their mean, so its learning rate grows with the number of ranks, and one more machine may make it diverge. The
# verification names the law that it breaks, and by how much. `backend="both"`, the default, also runs every law on
# real processes.
