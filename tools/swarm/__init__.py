"""A seeded swarm of faults: each seed draws a whole experiment and a fault plan, runs both in the simulator, and holds
the outcome to what docs/faults.md promises. `python -m tools.swarm --seed N` replays one; see docs/swarm.md.
"""
