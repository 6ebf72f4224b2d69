"""Export of runs and sweeps to trackers: MLflow, Weights & Biases, TensorBoard."""

from simcluster.lab.tracking.exporting import Exported, check, export

__all__ = ["Exported", "check", "export"]
