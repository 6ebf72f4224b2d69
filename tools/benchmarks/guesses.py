"""`python -m tools.benchmarks.guesses`: the CPU time per token with and without guessed tokens.

Guesses repeat earlier text. A GPT continues the kind of text on which it was trained.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from simcluster.experiment.run import run
from simcluster.lm.request import Sampling
from simcluster.lm.serving.request_options import RequestOptions, setup_of
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.topology import Topology

MODEL = {"name": "gpt", "layers": 6, "width": 256, "heads": 8, "context": 128, "batch_size": 4}
STEPS = 60
TOKENS = 100
PROMPT = "int main(void) {"


def trained(folder: Path) -> str:
    """Train a GPT on the default text. Write the run to *folder*, and return its path."""
    run(
        topology=Topology.star(1),
        algorithm="local_sgd",
        workload=MODEL,
        stop={"steps": STEPS},
        evaluate_every=STEPS,
        out=folder,
        report=False,
    )
    return str(folder)


def measured(model: str) -> None:
    """Print the CPU time per token. Unlike wall time, it does not depend on other processes.

    The simulator computes in this thread, so its CPU time includes that of the model.
    """
    cluster = Topology.star(1)

    def answered(guesses: int, sampling: Sampling) -> tuple[float, ServingResult]:
        options = RequestOptions(
            model, prompt=PROMPT, max_tokens=TOKENS, sampling=sampling, placement="alone", guesses=guesses
        )
        setup, _ = setup_of(options, cluster)
        began_s = time.process_time()
        found = answer_all(setup, cluster)
        return time.process_time() - began_s, found

    for name, sampling in (("greedy", Sampling()), ("drawn", Sampling(temperature=0.8, seed=1))):
        answered(0, sampling)  # load the weights first
        for guesses in (0, 4):
            taken_s, found = min((answered(guesses, sampling) for _ in range(5)), key=lambda one: one[0])
            right = f"{found.accepted} of {found.proposed} right"
            print(f"{name}, {guesses} guesses: {1e3 * taken_s / TOKENS:.2f} ms per token, {right}")


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        measured(trained(Path(home) / "model"))


if __name__ == "__main__":
    main()
