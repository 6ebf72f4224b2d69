"""Read an experiment file, and run the experiment."""

from simcluster.backend import BACKENDS
from simcluster.experiment.execute import run_plan
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.run import run

__all__ = ["BACKENDS", "Experiment", "read_experiment", "run", "run_plan"]
