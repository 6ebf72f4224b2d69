"""The swarm of served models: see docs/swarm.md."""
