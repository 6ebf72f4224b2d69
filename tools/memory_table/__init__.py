"""`make memory`: what real processes grow by, besides what was predicted, for docs/memory.md."""
