"""`verify` from Python and as a command: the table, exit codes, one's own algorithms with and without a claim."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lab.verify import running_mean, verify
from simcluster.lab.verify.claim import Claim
from simcluster.lab.verify.suite import CHECKS
from simcluster.lab.verify.verdict import Check, Verification
from tests.support.root import ROOT

DOCS = ROOT / "docs" / "verify.md"

HEAD = """
from typing import Literal
from simcluster import FREE, Replica, Transport, pack

"""
ALONE = (
    HEAD
    + """
async def alone(node: Transport, replica: Replica) -> None:
    for step, batch in enumerate(replica.batches(), start=1):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
"""
)


def written(folder: Path, text: str, name: str = "own") -> str:
    """An algorithm in a file, as a command names it."""
    (folder / f"{name}.py").write_text(text)
    (function,) = re.findall(r"^async def (\w+)\(node", text, re.MULTILINE)
    return f"{folder / name}.py:{function}"


def example() -> str:
    """The algorithm of docs/verify.md."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    (found,) = [block for block in blocks if "CLAIM" in block]
    return str(found)


def test_the_package_can_be_called_and_is_a_package_all_the_same() -> None:
    import simcluster.lab.verify.claim

    assert simcluster.lab.verify.claim.Claim is Claim
    found = simcluster.verify("all_reduce_dp", backend="sim", quick=True, nodes=[2], only=["learns"])
    assert found.ok
    assert [check.name for check in found.checks] == ["learns"]
    assert simcluster.lab.verify.verify is verify


@pytest.mark.slow
def test_the_example_of_the_documentation_keeps_every_claim_of_its_own(tmp_path: Path) -> None:
    found = verify(written(tmp_path, example()), nodes=[1, 3])
    assert found.ok, found.table()
    claimed = {check.name for check in found.checks if check.verdict == "holds"}
    assert {"N = one process", "identity", "bytes = formula", "replicas agree", "setting interval"} <= claimed
    assert {"fault: crash of a worker", "fault: short hang", "simulator = sockets", "determinism"} <= claimed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("total / node.size", "total / (node.size + 1)", "N = one process"),
        ("step % interval == 0", "step % 2 == 0", "setting interval"),
        ("* 2 * (size - 1)", "* (size - 1)", "bytes = formula"),
        ("await node.compute(replica.apply, ", "await node.compute(lambda *_: None, ", "learns"),
        ("replica.load(unflatten(", "node.rank or replica.load(unflatten(", "replicas agree"),
        ('"interval": 1}, "one process"', '"interval": 2}, "one process"', "identity"),
        ('"crash of a worker": "fails"', '"crash of a worker": "goes on"', "fault: crash of a worker"),
        ('"short hang": "ends well"', '"short hang": "goes on"', "fault: short hang"),
        ('"short hang":', '"tornado":', "fault: tornado"),
    ],
)  # fmt: skip
def test_a_claim_that_is_not_so_fails_the_check_of_its_name(old: str, new: str, check: str, tmp_path: Path) -> None:
    assert example().count(old) == 1
    found = verify(written(tmp_path, example().replace(old, new)), backend="sim", nodes=[1, 3], quick=True)
    assert not found.ok
    assert found[check].verdict == "fails", found.table()
    assert re.search(r"\d", found[check].reason) or check.startswith("fault"), "a reason has numbers"


@pytest.mark.slow
def test_an_algorithm_without_a_claim_is_told_what_it_is_and_held_to_what_all_must_keep(tmp_path: Path) -> None:
    found = verify(written(tmp_path, ALONE), backend="sim", nodes=[1, 2], quick=True)
    assert found.ok, found.table()
    assert found["N = one process"].verdict == "not claimed"
    assert "apart from one process on the joined batches on rank 0 and 1" in found["N = one process"].reason
    assert found["N = 1"].verdict == found["learns"].verdict == "holds"
    assert found["every setting changes something"].reason == "there is none"


def test_settings_are_tried_by_their_type_and_one_that_changes_nothing_fails(tmp_path: Path) -> None:
    settings = (
        "*, often: int = 2, kind: Literal['a', 'b'] = 'a', note: bool = False, rate: float = 1.0, name: str = 'x'"
    )
    text = ALONE.replace("replica: Replica)", f"replica: Replica, {settings})").replace(
        "        node.record(step=step, loss=loss)\n",
        "        if step % often == 0 or kind == 'b':\n            node.record(step=step, loss=loss * rate)\n",
    )
    found = verify(written(tmp_path, text), backend="sim", nodes=[2], only=["settings"])
    verdicts = {check.name.removeprefix("setting "): check.verdict for check in found.checks}
    assert verdicts == {"often": "holds", "kind": "holds", "note": "fails", "rate": "holds", "name": "not claimed"}
    assert "True and True with one node slower in place of False changes neither" in found["setting note"].reason


BROKEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    # what the ranks do after each step, the check that fails, what its reason says
    "randomness of the system": (
        "        import torch\n        generator = torch.Generator()\n        generator.seed()\n"
        "        noise = torch.rand(1, generator=generator).item()\n"
        "        replica.load([p + 1e-3 * noise for p in replica.parameters])\n",
        "determinism",
        {"only": ["determinism"]},
    ),
    "what nobody receives": (
        "        if node.rank:\n            for _ in range(step):\n                await node.send(0, 'lost', step)\n",
        "conservation of messages",
        {"only": ["messages"]},
    ),
    "weights that grow": (
        "        replica.load([1.01 * p for p in replica.parameters])\n",
        "fixed point",
        {"only": ["fixed point"], "claim": Claim("none", order_free=False)},
    ),
    "a deadlock": (
        "        if node.size > 1:\n            await node.recv((node.rank + 1) % node.size, 'never')\n",
        "learns",
        {"only": ["learns"]},
    ),
    "a parameter left out": (
        "        replica.parameters[-1].copy_(replica.born[-1])\n",
        "the gradient arrives",
        {"only": ["arrives"]},
    ),
    "a rank that learns nothing": (
        "        if node.rank == 1:\n            replica.load(replica.born)\n",
        "the gradient arrives",
        {"only": ["arrives"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_algorithm_fails(defect: str, tmp_path: Path) -> None:
    lines, check, options = BROKEN[defect]
    text = ALONE.replace("        node.record", lines + "        node.record")
    text = text.replace("    for step, batch", "    replica.born = replica.snapshot()\n    for step, batch")
    found = verify(written(tmp_path, text), backend="sim", nodes=[2], quick=True, **options)
    assert found[check].verdict == "fails", found.table()


@pytest.mark.slow
def test_an_algorithm_that_waits_for_ever_without_an_await_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simcluster.lab.verify.running.LIMIT_S", 0.5)
    text = ALONE.replace("        node.record", "        while node.size > 1:\n            pass\n        node.record")
    found = verify(written(tmp_path, text), backend="sim", nodes=[2], only=["learns"])
    assert found["learns"].reason == "N = 2: RunError: did not end within 0.5 s of wall time"


def test_a_result_that_depends_on_the_backend_fails(tmp_path: Path) -> None:
    text = ALONE.replace(
        "        node.record",
        "        import asyncio\n        if type(asyncio.get_running_loop()).__name__ == 'SimLoop':\n"
        "            replica.load([p * 1.001 for p in replica.parameters])\n        node.record",
    )
    found = verify(written(tmp_path, text), nodes=[2], only=["backends"], claim=Claim("none"))
    assert found["simulator = sockets"].verdict == "fails"
    assert found["simulator = sockets"].reason == "N = 2: rank 0 has other weights on sockets than in the simulator"


def test_every_wrong_request_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    own = written(tmp_path, ALONE)
    for options, words in [
        ({"algorithm": "edpp"}, "did you mean 'edp'"),
        ({"algorithm": str(tmp_path / "no.py:alone")}, "a file at"),
        ({"algorithm": own, "workload": "mnist"}, "did you mean 'mnist_cnn', 'mnist_mlp' or 'mnist_moe'"),
        ({"algorithm": own, "settings": {"interval": 3}}, "it has no settings"),
        ({"algorithm": own, "backend": "gpu"}, "sim, sockets or both"),
        ({"algorithm": own, "nodes": [0, 2]}, "at least 1"),
        ({"algorithm": own, "only": ["learn"]}, "did you mean 'learns'"),
        ({"algorithm": own, "seed": -1}, "at least 0"),
        ({"algorithm": own, "nodes": [2], "claim": Claim("none", sizes=(4,))}, r"some of \[4\]"),
    ]:
        with pytest.raises(UsageError, match=words):
            verify(**options)  # type: ignore[arg-type]
    wrong_claim = written(tmp_path, ALONE + "\nCLAIM = {'paper': 'mine'}\n", "wrong")
    with pytest.raises(UsageError, match="a Claim, from"):
        verify(wrong_claim)


@pytest.mark.slow
def test_the_command_prints_a_table_or_json_and_says_by_its_code_what_came_of_it(command: Any, tmp_path: Path) -> None:
    own = written(tmp_path, ALONE)
    code, out, _ = command("verify", own, "--backend", "sim", "--nodes", "2,1", "--quick")
    assert code == 0
    assert re.search(r"^  N = 1 +holds +one rank is ordinary training", out, re.MULTILINE)
    assert re.search(r"^\d+ holds, 0 fails, \d+ not claimed$", out, re.MULTILINE)
    broken = written(tmp_path, ALONE.replace("loss_and_gradients, batch", "loss_and_gradients, 2 * batch"), "broken")
    code, out, _ = command("verify", broken, "--backend", "sim", "--nodes", "1", "--quick", "--json")
    assert code == 1
    said = json.loads(out)
    assert said["ok"] is False
    assert "unsupported operand" in next(check["reason"] for check in said["checks"] if check["name"] == "N = 1")
    for arguments, words in [
        (["nobody"], "did you mean"),
        ([own, "--nodes", "two"], "whole numbers and commas"),
        ([own, "--set", "x.y=1"], "workload.NAME=VALUE"),
        ([own, "--set", "workload.features=1"], "--workload, too"),
    ]:
        code, out, error = command("verify", *arguments)
        assert (code, out) == (2, "")
        assert "error: " in error
        assert words in error or arguments == ["nobody"]


@pytest.mark.slow
def test_the_workload_and_its_settings_can_be_given(command: Any, tmp_path: Path) -> None:
    own = written(tmp_path, ALONE)
    common = ("--backend", "sim", "--nodes", "1", "--quick", "--json")
    code, out, _ = command("verify", own, "--workload", "quadratic", "--set", "workload.features=5", *common)
    assert (code, json.loads(out)["workload"]) == (0, "quadratic")
    spirals = ROOT / "experiments" / "own" / "spirals.py"
    code, out, _ = command("verify", own, "--workload", f"{spirals}:make_workload", *common)
    assert code == 0, out
    assert json.loads(out)["workload"].endswith("spirals.py:make_workload")


def test_a_table_folds_its_reasons() -> None:
    found = Verification("a", "w", (Check("one", "holds", "word " * 40), Check("another", "fails", "no")))
    lines = found.table(80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "a on w"
    assert lines[-2] == "  another  fails        no"
    assert lines[-1] == "1 holds, 1 fails, 0 not claimed"


def test_a_table_states_an_error_once_and_folds_what_is_not_claimed() -> None:
    stuck = "Deadlock: deadlock at {} s: nothing can happen any more"
    checks = (
        Check("learns", "fails", f"N = 3: {stuck.format(0.2)}"),
        Check("N = 1", "holds", f"N = 1: {stuck.format(0.2)}"),  # no failure
        Check("replicas agree", "fails", f"N = 2: {stuck.format(1e-05)}"),  # a smaller run, so another time
        Check("identity", "fails", "N = 2: NodeFailed: rank 0 (n0) failed: ValueError: no"),
        Check("identity", "fails", "N = 3: NodeFailed: rank 0 (n0) failed: ValueError: no"),
        Check("staleness", "fails", "N = 3: NodeFailed: rank 0 (n0) failed: KeyError: 'x'"),
        Check("clipping", "not claimed", "no claim"),
        Check("clipping", "not claimed", "no other claim"),
        Check("bytes = formula", "not claimed", "no formula"),
    )
    found = Verification("a", "w", checks)
    rows = [(line[2:11].strip(), line[11:].split(maxsplit=1)) for line in found.table(200).splitlines()[1:-1]]
    assert [(name, rest) for name, rest in rows] == [
        ("learns", ["fails", f"{checks[0].reason}; the same fails replicas agree"]),
        ("N = 1", ["holds", checks[1].reason]),
        ("identity", ["fails", f"{checks[3].reason}; the same fails identity"]),
        ("staleness", ["fails", checks[5].reason]),
        ("2 checks", ["not", "claimed  clipping and bytes = formula: to_dict() and --json have the reasons"]),
    ]
    assert found.counts == "1 holds, 5 fails, 3 not claimed"
    assert [row["reason"] for row in found.to_dict()["checks"]] == [check.reason for check in checks]


def test_a_table_is_as_wide_as_the_terminal_and_120_columns_in_a_pipe(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, most = written(tmp_path, ALONE), {}
    for columns in ("100", ""):
        monkeypatch.setenv("COLUMNS", columns)
        code, out, _ = command("verify", own, "--backend", "sim", "--nodes", "1", "--quick")
        assert code == 0
        most[columns] = max(map(len, out.splitlines()[1:-1]))  # the first and the last line are not folded
    assert most["100"] <= 100 < most[""] <= 120


@pytest.mark.slow
def test_every_line_of_the_documentation_is_one_of_the_table(tmp_path: Path) -> None:
    told = re.findall(r"^- \*\*(.+?)\*\*", DOCS.read_text(), re.MULTILINE)
    found = verify(written(tmp_path, example()), backend="sim", nodes=[1, 2], quick=True)
    for check in found.checks:
        kind = re.sub(r"^(setting|fault).*", r"\1", check.name)
        assert any(kind in row for row in told), check.name
    assert len(CHECKS) == 33


@pytest.mark.parametrize("algorithm", ["sync_ps", "all_reduce_dp"])
def test_bytes_of_running_statistics_are_in_no_formula(algorithm: str) -> None:
    workload = f"{running_mean.__file__}:running_mean"
    found = verify(algorithm, workload=workload, backend="sim", nodes=[1, 2], only=["bytes"])
    assert found["bytes = formula"].verdict == "not claimed", found.table()
