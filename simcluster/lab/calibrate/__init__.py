"""Measure a cluster over a backend, and write its topology with the measured numbers."""

from simcluster.lab.calibrate.run import Calibration, calibrate
from simcluster.lab.calibrate.write import calibrated_document, describe

__all__ = ["Calibration", "calibrate", "calibrated_document", "describe"]
