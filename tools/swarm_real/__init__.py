"""A swarm on real processes: see docs/swarm.md."""
