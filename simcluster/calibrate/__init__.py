"""Measures a cluster over a backend and writes its topology with the measured numbers."""

from simcluster.calibrate.run import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
