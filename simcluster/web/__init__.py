"""The parts that all HTTP services and pages share: checks of requests, styles, and scripts that
draw a run.
"""
