"""Runs and sweeps written to where people already look: MLflow, Weights & Biases, TensorBoard."""

from simcluster.tracking.exporting import Exported, check, export

__all__ = ["Exported", "check", "export"]
