"""A seeded swarm of faults in the simulator.

Each seed draws an experiment and a fault plan, runs the experiment with and without the faults, and
checks the outcome against the promises of docs/faults.md. `python -m tools.swarm --seed N` replays
a seed; see docs/swarm.md.
"""
