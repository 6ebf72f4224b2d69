"""The tools: most run a simcluster command in a process, without a shell, within a time limit."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from simcluster.catalogue import KINDS, catalogue
from simcluster.errors import Problem, UsageError
from simcluster.lab.mcp_server.bounds import Root, bounded
from simcluster.lab.ui.run_children import Children, RunForm, command
from simcluster.process.exits import INTERRUPTED
from simcluster.process.signals import kill_group
from simcluster.process.tied import TIED
from simcluster.runs.folder import SUMMARY, read_summary
from simcluster.spelling import nearest

MOST_OUTPUT = 16 << 20
"""Limit on the bytes read from a command's output."""

LINES = 20
"""Limit on the lines of output or errors in one answer."""

POLL_S = 0.1


class ToolDesk:
    """The tools for files below the folder *root*; a call takes at most *budget_s*."""

    def __init__(self, root: Path, budget_s: float = 120.0) -> None:
        if not root.is_dir():
            raise UsageError("--root", f"no folder {root}", "a folder for the runs")
        if not 0 < budget_s <= 86_400:
            raise UsageError("--budget", f"{budget_s:g} s", "more than 0 s and at most a day")
        self._root = Root(root)
        self._budget_s = budget_s
        self._children = Children(self._root.folder)

    def tools(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Return the tools by name."""
        own = (
            self.explain, self.check, self.estimate, self.submit, self.status, self.wait, self.result, self.cancel,
            self.compare, self.whatif, self.replay,
        )  # fmt: skip
        return {"list": self.names} | {tool.__name__: tool for tool in own}

    def names(self, kind: str = "") -> dict[str, Any]:
        """List the known names of one *kind*, or of all kinds.

        Kinds are algorithms, workloads, topologies, generators, experiments, links, devices,
        backends and models.
        """
        if kind and kind not in KINDS:
            raise UsageError("kind", repr(kind[:100]), f"a kind: {nearest(kind[:100], KINDS)}")
        return bounded({name: catalogue(name) for name in KINDS if kind in ("", name)})

    def explain(self, what: str, nodes: int = 4) -> dict[str, Any]:
        """Explain an algorithm, or the run with a handle, in sentences.

        For a run, the sentences say where its time went and what would help most.
        """
        folder = None
        with suppress(UsageError):
            folder = self._root.run(what)
        if folder is not None:
            return self._answer(["explain", "--json", "--", str(folder)])
        named = self._root.named("what", what, "algorithms")
        return self._answer(["explain", "--json", f"--nodes={nodes}", "--", named])

    def check(
        self, experiment: str, topology: str = "", algorithm: str = "", sets: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Check an experiment by simulating one step without computing.

        Return `ok`, or all problems with their places.
        """
        more = {"stop": {"steps": 1}, "numerics": "none"}
        with TemporaryDirectory(prefix="simcluster-check-") as home:
            form = self._form(experiment, topology, algorithm, {**(sets or {}), **more}, None)
            code, _, problems = self._command(_told(form, Path(home)))
        return bounded({"ok": code == 0, "problems": problems if code else []})

    def estimate(
        self,
        experiment: str,
        topology: str = "",
        algorithm: str = "",
        sets: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Predict an experiment's time, messages, bytes and memory per node, without computing."""
        with TemporaryDirectory(prefix="simcluster-estimate-") as home:
            form = self._form(experiment, topology, algorithm, {**(sets or {}), "numerics": "none"}, seed)
            return self._answer(_told(form, Path(home)))

    def submit(
        self,
        experiment: str,
        topology: str = "",
        algorithm: str = "",
        sets: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Start a simulated run; return its handle and seed at once."""
        if not 0 <= seed < 1 << 63:
            raise UsageError("seed", str(seed), "a whole number from 0 to 2^63 - 1")
        wanted = self._form(experiment, topology, algorithm, sets or {}, seed).model_copy(update={"backend": "sim"})
        return {"handle": self._children.start(wanted)["id"], "seed": seed, "truncated": False}

    def status(self, handle: str) -> dict[str, Any]:
        """Return a run's state (running, done, failed or cancelled) and its last output lines."""
        child = self._child(handle)
        states = {None: "running", 0: "done", INTERRUPTED: "cancelled"}
        state = states.get(child["code"], "failed")
        return bounded({"handle": handle, "state": state, "lines": child["lines"][-LINES:]})

    def wait(self, handle: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for a run to end, for at most *seconds* and the budget; return its status."""
        end_s = time.monotonic() + min(max(0.0, seconds), self._budget_s)
        while self._child(handle)["code"] is None and time.monotonic() < end_s:
            time.sleep(POLL_S)
        return self.status(handle)

    def result(self, handle: str) -> dict[str, Any]:
        """Return the summary of a run that has ended."""
        folder = self._root.run(handle)
        if not (folder / SUMMARY).is_file():
            raise UsageError("handle", repr(handle), "a run that has ended: see status")
        return bounded({"handle": handle, **read_summary(folder)})

    def cancel(self, handle: str) -> dict[str, Any]:
        """Stop a run; return its status."""
        self._child(handle)
        self._children.stop(handle)
        return self.wait(handle, self._budget_s)

    def compare(self, handles: Sequence[str]) -> dict[str, Any]:
        """Compare each run with the first run, in words and numbers."""
        if not 2 <= len(handles) <= 10:
            raise UsageError("handles", str(len(handles)), "2 to 10 runs")
        return self._answer(["compare", "--json", "--", *(str(self._root.run(handle)) for handle in handles)])

    def whatif(
        self, experiment: str, goal: str = "step-time", topology: str = "", algorithm: str = "",
        sets: Mapping[str, Any] | None = None, seeds: int = 1,
    ) -> dict[str, Any]:  # fmt: skip
        """Find the bottleneck of an experiment, and what to buy: every link, device and setting is changed in turn."""
        with TemporaryDirectory(prefix="simcluster-whatif-") as home:
            form = self._form(experiment, topology, algorithm, sets or {}, None)
            return self._answer(["whatif", f"--goal={goal[:100]}", f"--seeds={seeds}", *_told(form, Path(home))[1:]])

    def replay(self, handle: str) -> dict[str, Any]:
        """Replay a real run in the simulator, in its recorded order, and compare the two runs."""
        with TemporaryDirectory(prefix="simcluster-replay-") as home:
            folder = str(self._root.run(handle))
            found = self._answer(["replay", f"--out={home}/replay", "--no-report", "--json", "--", folder])
        # The folder of the replay was temporary: leave it out of the answer.
        return {key: value for key, value in found.items() if key != "folder"}

    def close(self) -> None:
        """Stop every run that was submitted."""
        self._children.close()

    def _child(self, handle: str) -> dict[str, Any]:
        found = next((child for child in self._children.all() if child["id"] == handle), None)
        if found is None:
            raise UsageError("handle", repr(handle[:100]), "a handle from submit")
        return found

    def _form(
        self, experiment: str, topology: str, algorithm: str, sets: Mapping[str, Any], seed: int | None
    ) -> RunForm:
        """Return the form that starts a run.

        Raise UsageError for files outside the root and for invalid overrides.
        """
        return RunForm.model_construct(  # Without validation: the root has checked every string.
            experiment=self._root.named("experiment", experiment, "experiments"),
            topology=self._root.named("topology", topology, "topologies") if topology else "",
            algorithm=self._root.named("algorithm", algorithm, "algorithms") if algorithm else "",
            seed=seed,
            sets=self._root.sets(sets),
        )

    def _answer(self, words: Sequence[str]) -> dict[str, Any]:
        """Run a command; return the JSON that it prints.

        Raise UsageError, with the command's errors, if it fails.
        """
        code, out, problems = self._command(words)
        if code:
            raise UsageError([Problem(words[0], text, "") for text in problems[:LINES]])
        found = json.loads(out)
        return bounded(found if isinstance(found, dict) else {"rows": found})

    def _command(self, words: Sequence[str]) -> tuple[int, str, list[str]]:
        """Run a command; return (exit code, output, errors).

        A command that exceeds the budget is killed; its exit code is 124.
        """
        with TemporaryFile() as out, TemporaryFile() as err:
            with subprocess.Popen(  # noqa: S603 - a list of arguments, each checked by Root
                [*TIED, *words],
                stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=self._root.folder, start_new_session=True,
            ) as process:  # fmt: skip
                try:
                    code = process.wait(self._budget_s)
                except subprocess.TimeoutExpired:
                    kill_group(process.pid)
                    return 124, "", [f"more than the budget of {self._budget_s:g} s"]
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read(MOST_OUTPUT).decode(errors="replace"))
        errors = [line.removeprefix("error: ")[:2000] for line in texts[1].splitlines() if line.strip()]
        return code, texts[0], errors or [f"exit code {code}"]


def _told(form: RunForm, home: Path) -> list[str]:
    """Return the arguments that run *form* below *home*, print JSON and write no report."""
    kind, *options = command(form, home / "run")
    return [kind, "--no-report", "--json", *options]
