"""The advisor behind `simcluster whatif`: what limits an experiment, and what to buy."""
