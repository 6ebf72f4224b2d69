"""Commands that answer in sentences: what an algorithm is, what happened in a run, what a cluster gains over a node."""
