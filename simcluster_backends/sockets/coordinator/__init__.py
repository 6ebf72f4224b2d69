"""One small service beside a run: who is there, with which rank, how far everybody is.

membership and board are pure; status puts both into words for machines; guard, patience and api are HTTP; service runs
it; client is what launchers and nodes call it with, and needs nothing but Python.
"""
