"""Measurements, as ratios and costs in one run of `make bench`; never a test, since no timing is a promise."""
