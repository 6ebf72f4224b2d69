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
# # What if the repair crew is one person?
#
# Eight laptops train in lockstep. Their fans fail at random, and a laptop without one runs at a tenth of its speed
# until it is repaired. The failures are a world: a SimPy process that acts on the cluster.

# %%
try:
    import simcluster
except ModuleNotFoundError:
    # `..` is the checkout around this notebook. On Colab, clone the repository and name its folder instead.
    # %pip install --quiet "..[torch]"
    import simcluster

# %%
import plotly.graph_objects as go
import simpy

experiment = {
    "name": "repairs",
    "topology": {"generator": "star", "workers": 8, "bandwidth": "1 Gbps", "latency": "200 us"},
    "algorithm": "all_reduce_dp",
    "workload": {"name": "mnist_mlp", "batch_size": 1000},
    "stop": {"steps": 40},
    "numerics": "none",  # the question is about time
}
well = simcluster.run(experiment, out="runs/repairs/well", report=False)
well_s = well.summary["elapsed_s"]

# %% [markdown]
# ## The world
#
# Each laptop's fan fails twice per undisturbed run, on average. A repair takes a twentieth of that run, once a person
# is free.


# %%
def repair_crew(env, cluster, *, crew: int, mean_s: float, repair_s: float):
    people = simpy.Resource(env, capacity=crew)

    def laptop(node):
        rng = cluster.rng(node.name)
        while True:
            yield env.timeout(rng.exponential(mean_s))
            node.speed = 0.1
            with people.request() as person:
                yield person
                yield env.timeout(rng.exponential(repair_s))
            node.speed = 1.0

    yield env.all_of([env.process(laptop(node)) for node in cluster.nodes])


# %% [markdown]
# ## Ten seeds for each crew
#
# One run would be an anecdote: what matters is by when nine of ten runs end.

# %%
world = {"path": repair_crew, "crew": 1, "mean_s": well_s / 2, "repair_s": well_s / 20}
sweep = simcluster.sweep(
    {**experiment, "world": world}, {"world.crew": [1, 2, 8]}, seeds=10, out="runs/repairs/sweep", jobs=1
)
times_s = sweep.table.groupby("world.crew").elapsed_s.quantile([0.5, 0.9], interpolation="lower").unstack()
table = times_s / well_s  # the median, and by when nine of ten runs end, in undisturbed runs
table.round(2)

# %%
figure = go.Figure(layout={"xaxis_title": "time, in undisturbed runs", "yaxis_title": "people", "showlegend": False})
for crew, rows in sweep.table.groupby("world.crew"):
    figure.add_box(x=rows.elapsed_s / well_s, name=str(crew), boxpoints="all")
figure

# %% [markdown]
# ## The answer
#
# Nine of ten runs end a fifth later: within 1.8 undisturbed runs, against 1.5 with two people. The second person is
# worth it; eight are hardly better than two.
