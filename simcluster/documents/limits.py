"""Upper bounds of the counts in a request; larger ones would overflow on the wire or never end."""

MOST_STEPS = 10**9
"""Steps of a run, and intervals in steps."""

MOST_BYTES = 10**15
"""A petabyte, for a vector that is only timed."""

MOST_WHOLE = 2**63 - 1
"""Seeds and integer settings: the range of a message field and a table column."""
