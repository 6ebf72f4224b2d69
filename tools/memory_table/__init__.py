"""`make memory`: measured and predicted memory growth of real processes, for docs/memory.md."""
