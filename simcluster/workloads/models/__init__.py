"""The workloads that ship: handwritten digits, a quadratic bowl, a small GPT."""
