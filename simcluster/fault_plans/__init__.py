"""Fault plans: the kinds of faults, the reader of a plan, and the log of the faults that
happened.
"""
