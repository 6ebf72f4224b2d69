"""Predict where a language model should run before anything is loaded: closed forms on a topology, no simulation."""
