"""Mistakes with answers from other parts: warnings, functions and objects, data and models."""

from tests.whole.first_ten_minutes.row import ALGORITHM, PYTHON, Row, algorithm, model, typed

_LOOP = "async for step, batch in simcluster.algorithms.steps(replica):\n        node.record(step=step, loss=0.0)\n"
_F = f"import simcluster\nimport simcluster.algorithms\n\n\nasync def algo(node, replica, *, k=1):\n    {_LOOP}\n\n"
_KEYS = "topology='smolcluster', workload='quadratic', overrides={'stop.steps': 2}, out='out', report=False"
_W = "loss=nn.functional.cross_entropy, optimizer=sgd(0.1), batch_size=4"


def _python(name: str, group: str, script: str, place: str, *says: str, code: int = 1, area: str = "objects") -> Row:
    return Row(name, group, says, place, script=script, code=code, area=area)


ROWS = (
    _python(
        "lambda as algorithm",
        ALGORITHM,
        f"import simcluster\nsimcluster.run(algorithm=lambda node, replica: None, {_KEYS})\n",
        "algorithm",
        "async def",
    ),
    _python(
        "functools.partial",
        ALGORITHM,
        f"{_F}from functools import partial\n"
        f"print(simcluster.run(algorithm=partial(algo, k=2), {_KEYS}).summary['status'])\n",
        "done",
        code=0,
    ),
    _python(
        "function of a notebook's cell",
        ALGORITHM,
        f"import linecache\nimport simcluster\nsource = {_F!r}\n"
        "linecache.cache['<ipython-input-1>'] = (len(source), None, source.splitlines(True), '<ipython-input-1>')\n"
        "cell = {'__name__': '__main__'}\nexec(compile(source, '<ipython-input-1>', 'exec'), cell)\n"
        f"print(simcluster.run(algorithm=cell['algo'], {_KEYS}).summary['status'])\n",
        "done",
        code=0,
    ),
    algorithm("exception", "raise KeyError('missing')", 'algo.py", line 8', "KeyError: 'missing'", area="objects"),
    algorithm(
        "array in a message",
        "import numpy; await node.send((node.rank + 1) % node.size, 'x', numpy.zeros(3))",
        'algo.py", line 8',
        "tensors and scalars, not ndarray",
        area="objects",
    ),
    algorithm(
        "rank that is not there",
        "await node.send(node.size, 'x', 1)",
        'algo.py", line 8',
        "rank 5 is no peer",
        area="objects",
    ),
    algorithm(
        "work without a cost",
        "await node.compute(replica.loss_and_gradients, batch)",
        'algo.py", line 8',
        "cost",
        area="objects",
    ),
    algorithm(
        "compute not awaited",
        "node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))",
        "algo.py:8",
        "warning",
        "await",
        code=0,
        area="warnings",
    ),
    algorithm(
        "send not awaited",
        "node.send((node.rank + 1) % node.size, 'x', 1)",
        "algo.py:8",
        "warning",
        "await",
        code=0,
        area="warnings",
    ),
    algorithm(
        "work outside node.compute",
        "replica.apply(replica.loss_and_gradients(batch)[1])",
        "node.compute",
        "warning",
        code=0,
        area="warnings",
    ),
    algorithm(
        "state that ranks share",
        "seen.append(node.rank); node.record(step=step, loss=float(len(seen)))",
        "seen",
        "warning",
        code=0,
        head="seen = []\n",
        area="warnings",
    ),
    model(
        "DataLoader as data",
        f"Workload(model=lambda: nn.Linear(4, 2), train=torch.utils.data.DataLoader("
        f"torch.utils.data.TensorDataset(x, y), batch_size=4), {_W})",
        "done",
        code=0,
        area="data",
    ),
    model(
        "model on the meta device",
        f"Workload(model=lambda: nn.Linear(4, 2, device='meta'), train=(x, y), {_W})",
        "model",
        "meta",
        area="data",
    ),
    model(
        "list of dicts as data",
        f"Workload(model=lambda: nn.Linear(4, 2), train=[{{'a': 1}} for _ in range(400)], {_W})",
        "train",
        area="data",
    ),
    model(
        "optimizer with a scheduler",
        f"Workload(model=lambda: nn.Linear(4, 2), train=(x, y), **{{**dict({_W}), "
        "'optimizer': lambda ps: (one := torch.optim.SGD(ps, 0.1), torch.optim.lr_scheduler.StepLR(one, 1))})",
        "done",
        code=0,
        area="data",
    ),
    model(
        "model instead of a factory",
        f"Workload(model=nn.Linear(4, 2), train=(x, y), {_W})",
        "model",
        "lambda",
        area="data",
    ),
    model(
        "shapes that do not fit",
        f"Workload(model=lambda: nn.Linear(5, 2), train=(x, y), {_W})",
        "work.py",
        "shape",
        area="data",
    ),
    *(
        typed(name, (*given, "--set", "stop.steps=2"), "own", "done", group=PYTHON, own=_F, code=0, area="objects")
        for name, given in (
            ("own file as --algorithm", ("--algorithm", "own.py:algo")),
            ("own file by --set", ("--set", "algorithm={path: own.py:algo}")),
        )
    ),
    _python(
        "graph as topology",
        PYTHON,
        "import networkx\nimport simcluster\nsimcluster.run('quickstart', topology=networkx.complete_graph(3))\n",
        "topology",
        "device",
        code=1,
    ),
    _python(
        "workload as an object",
        PYTHON,
        "import simcluster\nfrom simcluster.workloads import quadratic\n"
        f"keys = {{**dict({_KEYS}), 'workload': quadratic()}}\n"
        "print(simcluster.run(algorithm='edp', **keys).summary['status'])\n",
        "done",
        code=0,
    ),
    _python(
        "stop as an argument of an experiment",
        PYTHON,
        "import simcluster\n"
        "print(simcluster.run('quickstart', stop={'steps': 3}, report=False).summary['steps'], 'steps')\n",
        "3 steps",
        code=0,
    ),
    _python(
        "paths compared",
        PYTHON,
        "import simcluster\nfor n in 'ab':\n"
        "    simcluster.run('quickstart', overrides={'stop.steps': 2}, out=n, report=False)\n"
        "print(simcluster.compare('a', 'b').describe())\n",
        "loss",
        code=0,
    ),
    typed(
        "loss that diverges",
        ("--set", "workload.learning_rate=1e30", "--set", "stop.steps=5"),
        "loss",
        "warning",
        "nan from step 1 on",
        "rank 0",
        group=PYTHON,
        code=0,
        area="warnings",
    ),
    typed(
        "--watch without a terminal",
        ("--watch", "--set", "stop.steps=2"),
        "--watch",
        "note",
        "terminal",
        group=PYTHON,
        code=0,
        area="warnings",
    ),
)
