"""The benchmarks behind `simcluster bench`."""
