"""What is claimed of each of our algorithms: one file per algorithm, called like it, with a `CLAIM` in it."""
