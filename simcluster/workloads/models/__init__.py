"""The workloads in the package: handwritten digits, least squares, and GPTs."""
