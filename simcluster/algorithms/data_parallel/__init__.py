"""Data parallelism: every rank computes gradients of the whole model and averages them with all
other ranks.
"""
