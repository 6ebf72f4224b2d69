"""Benchmarks for `make bench`: ratios and costs. They are not tests, since timings vary."""
