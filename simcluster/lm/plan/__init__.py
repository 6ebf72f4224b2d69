"""Predict where a language model should run, from closed forms and without a simulation.

No weights are loaded.
"""
