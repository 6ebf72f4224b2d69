"""Random programs with computed schedules and message by message: see docs/swarm.md."""
