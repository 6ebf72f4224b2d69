"""The advisor of `simcluster whatif`: what limits an experiment, and what to buy."""
