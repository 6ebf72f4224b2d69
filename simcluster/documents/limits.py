"""The largest counts that a request may state: more could not be counted on the wire, or would never end."""

MOST_STEPS = 10**9
"""Steps of a run, and intervals in steps."""

MOST_BYTES = 10**15
"""A petabyte: of a vector that is only timed."""

MOST_WHOLE = 2**63 - 1
"""Seeds, and whole numbers among settings: what a message between nodes and a column of a table can hold."""
