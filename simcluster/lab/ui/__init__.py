"""The page of `simcluster ui`, which lists, compares, watches and starts runs and sweeps.

`shelf` lists the runs in a folder, `compared` draws several runs, `run_children` starts runs,
`guard` checks requests, and `app` has the routes. The command in cli/ui.py serves the page.
"""
