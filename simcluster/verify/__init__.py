"""The proof kit: holds an algorithm, ours or a user's own, to what is claimed of it."""
