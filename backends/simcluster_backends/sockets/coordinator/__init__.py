"""A small HTTP service alongside a run, which keeps the present nodes, their ranks and progress.

`membership` keeps the state, `status` formats it, and `desk` serves the calls. `guard`,
`rate_limits` and `api` handle HTTP; `service` runs the server. `client` makes calls for launchers
and nodes, and needs only the standard library.
"""
