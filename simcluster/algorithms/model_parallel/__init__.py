"""Model parallelism: every rank holds a part of the model."""
