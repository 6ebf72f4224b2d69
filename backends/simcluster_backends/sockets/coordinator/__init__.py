"""A small service alongside a run: the present nodes, their ranks, and their progress.

membership and board are pure; status formats both for machines; guard, rate_limits and api are HTTP; service runs it;
client, for launchers and nodes, needs only the standard library.
"""
