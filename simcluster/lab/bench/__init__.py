"""The benchmarks of `simcluster bench`."""
