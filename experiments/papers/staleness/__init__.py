"""Papers on workers that do not wait for each other, and on what stale gradients cost."""
