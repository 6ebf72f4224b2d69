"""Mistakes in an own algorithm (9 of 20), model (4 of 10) and installation (1 of 9) that are answered already."""

from tests.whole.first_ten_minutes.row import ALGORITHM, OWN, PYTHON, Row, algorithm, model

_PLAIN = "def algo(node, replica{more}):\n    pass\n"


def _whole(name: str, text: str, place: str, *says: str) -> Row:
    return Row(name, ALGORITHM, says, place, {"e.yaml": OWN, "algo.py": text})


ROWS = (
    _whole(
        "setting without a default", f"async {_PLAIN.format(more=', *, k')}", "e.yaml:3:1", "algorithm.k", "no default"
    ),
    _whole("plain function", _PLAIN.format(more=""), "algo.py", "an `async def` function"),
    _whole("syntax error", "async def algo(node, replica:\n    pass\n", "algo.py:1", "SyntaxError", "never closed"),
    algorithm("clock of its own", "pass", "algo.py:1:1", "found time", "asyncio.sleep", code=2, head="import time\n"),
    algorithm("deadlock", "await node.recv((node.rank + 1) % node.size, 'x')", "algo.py:8", "Deadlock", "recv"),
    algorithm(
        "wrong tag",
        "await node.send((node.rank + 1) % node.size, 'grads', 1); await node.recv(tag='grad')",
        "algo.py:8",
        "Deadlock",
        "unread: 1 message from rank 4",
        "with tag 'grads'",
    ),
    algorithm(
        "recv not awaited",
        "message = node.recv((node.rank - 1) % node.size, 'grad'); message.tensor",
        "algo.py:8",
        "calls recv without await: write `await`",
    ),
    algorithm("loop without end", "while True: await asyncio.sleep(0)", "algo.py:8", "NeverFinished"),
    algorithm(
        "file that starts itself",
        "pass",
        "algo.py",
        "__main__",
        code=2,
        head="import simcluster\n\nsimcluster.run('e.yaml')\n",
    ),
    model("nothing returned", "None", "e.yaml:4:18", "a function that returns a Workload, not a NoneType"),
    model("model returned", "nn.Linear(4, 2)", "e.yaml:4:18", "a function that returns a Workload, not a Linear"),
    model("no optimizer", "Workload(model=lambda: nn.Linear(4, 2), **rest)", "work.py:13", "'optimizer'"),
    model(
        "batch too large",
        "Workload(model=lambda: nn.Linear(4, 2), optimizer=sgd(0.1), **{**rest, 'batch_size': 4000})",
        "batch_size",
        "4000",
        "at most 80",
    ),
    Row(
        "no torch",
        PYTHON,
        ("pip install torch", "https://download.pytorch.org/whl/cpu"),
        "torch is not installed",
        {"torch.py": "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"},
        script="from simcluster.__main__ import main\nimport sys\n"
        "sys.argv = ['simcluster', 'run', 'quickstart']\nmain()\n",
    ),
)
