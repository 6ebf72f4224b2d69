"""The page of `simcluster ui`: runs and sweeps of a folder, compared, watched as they run, and started.

shelf reads the folder, compared draws several runs, children starts runs, guard checks requests, and app has the
routes. The command in cli/ui.py serves it.
"""
