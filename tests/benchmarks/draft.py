"""`python -m tests.benchmarks.draft`: when a small model that guesses pays.

First in the simulator: Llama 3 70B and 8B on four Mac minis, by the chance that a guess is right. Then on
this machine's CPU: two GPTs that have read the same text. docs/inference.md has the numbers.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replaced

from simcluster.experiment.run import run
from simcluster.inference.request import Sampling
from simcluster.serving.asked import Asked, setup_of
from simcluster.serving.guessing import Guessing
from simcluster.serving.run import Answers, answer_all
from simcluster.topology import Topology, load

TOGETHER, CHANCES, GUESSES, ANSWER = (1, 8), (0.6, 0.8, 0.9), (2, 4, 8), 256
LARGE, SMALL = {"layers": 6, "width": 256, "heads": 8}, {"layers": 1, "width": 64, "heads": 4}
STEPS, CONTEXT, TOKENS, PROMPT = 60, 128, 100, "int main(void) {"


def simulated() -> None:
    cluster = load("thunderbolt-mesh-4")

    def per_s(together: int, guessing: Guessing) -> float:
        """Return the tokens per second of all answers after the first tokens."""
        asked = Asked(
            "70b", prompt_tokens=512, max_tokens=ANSWER, weights="q4", placement="pipeline", guessing=guessing
        )
        setup, _ = setup_of(asked, cluster)
        requests = tuple(replace(setup.requests[0], id=str(i)) for i in range(together))
        answers = answer_all(replaced(setup, requests=requests), cluster).answers.values()
        return sum(1 / one.tpot_s for one in answers if one.tpot_s is not None)

    for together in TOGETHER:
        plain = per_s(together, Guessing())
        print(f"{together} requests: {plain:.2f} tokens/s")
        for chance in CHANCES:
            ratios = [per_s(together, Guessing(k, "8b", chance)) / plain for k in GUESSES]
            print(f"  chance {chance}: " + ", ".join(f"{k}: {x:.2f}" for k, x in zip(GUESSES, ratios, strict=True)))


def trained(folder: Path, sizes: dict[str, int]) -> str:
    """Return the folder of a GPT of *sizes* that has read some text."""
    workload = {"name": "gpt", "context": CONTEXT, "batch_size": 4, **sizes}
    run(
        topology=Topology.star(1),
        algorithm="local_sgd",
        workload=workload,
        stop={"steps": STEPS},
        evaluate_every=STEPS,
        out=folder,
        report=False,
    )
    return str(folder)


def measured(home: Path) -> None:
    """Print CPU time and not time, which other processes change; the simulator computes in this thread."""
    large, small = trained(home / "large", LARGE), trained(home / "small", SMALL)
    cluster = Topology.star(1)

    def answered(guessing: Guessing, sampling: Sampling) -> tuple[float, Answers]:
        asked = Asked(large, prompt=PROMPT, max_tokens=TOKENS, sampling=sampling, placement="alone", guessing=guessing)
        setup, _ = setup_of(asked, cluster)
        began_s = time.process_time()
        found = answer_all(setup, cluster)
        return time.process_time() - began_s, found

    cases = {"plain": Guessing(), "looked up, 4": Guessing(4)}
    cases |= {f"draft, {k}": Guessing(k, small) for k in GUESSES} | {"itself, 4": Guessing(4, large)}
    for name, sampling in (("greedy", Sampling()), ("drawn", Sampling(temperature=0.8, seed=1))):
        answered(Guessing(4, small), sampling)  # which loads the weights
        for case, guessing in cases.items():
            taken_s, found = min((answered(guessing, sampling) for _ in range(5)), key=lambda one: one[0])
            print(
                f"{name}, {case}: {1e3 * taken_s / TOKENS:.2f} ms per token, {found.accepted} of {found.proposed} right"
            )


def main() -> None:
    simulated()
    with tempfile.TemporaryDirectory() as home:
        measured(Path(home))


if __name__ == "__main__":
    main()
