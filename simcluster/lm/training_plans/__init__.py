"""Predict from closed forms which algorithm and split train a model fastest on a topology."""
