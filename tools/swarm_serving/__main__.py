"""`python -m tools.swarm_serving`: try random loads, cancels and faults on a served
model, by seed.
"""

from __future__ import annotations

import argparse

from tools.swarm_serving.trial import broken, broken_on_processes, broken_when_generated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", action="store_true", help="on processes, with signals")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    asked, count = parser.parse_args(), 0
    for seed in range(asked.first, asked.first + asked.seeds):
        found = broken_on_processes(seed) if asked.real else [*broken(seed), *broken_when_generated(seed)]
        if found:
            count += 1
            print(f"seed {seed}: {'; '.join(found)}", flush=True)
    print(f"{count} of {asked.seeds} seeds broken")
    raise SystemExit(count > 0)


if __name__ == "__main__":
    main()
