"""The commands about language models: what to place where, and what it says."""
