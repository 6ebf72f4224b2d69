"""Upper bounds of the numbers in a request.

Larger numbers would overflow in a message, or the run would never end.
"""

MOST_STEPS = 10**9
"""Limit on the steps of a run, and on intervals in steps."""

MOST_BYTES = 10**15
"""Limit on the size of a vector whose transfer is only timed: a petabyte."""

MOST_WHOLE = 2**63 - 1
"""Limit on seeds and integer settings: the range of a message field and of a table column."""
