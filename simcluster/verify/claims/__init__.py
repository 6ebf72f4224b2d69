"""The claims about our algorithms: one file per algorithm, with its name and a `CLAIM`."""
