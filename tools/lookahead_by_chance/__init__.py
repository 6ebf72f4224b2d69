"""Random programs that check computed schedules against message-by-message simulation.

See docs/swarm.md.
"""
