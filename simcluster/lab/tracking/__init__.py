"""Export runs and sweeps to trackers: MLflow, Weights & Biases, TensorBoard."""

from simcluster.lab.tracking.exporting import ExportReport, check, export

__all__ = ["ExportReport", "check", "export"]
