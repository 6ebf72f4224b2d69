"""The experiment file, and how it is run."""

from simcluster.experiment.execute import run_plan
from simcluster.experiment.keys import BACKENDS
from simcluster.experiment.read import Experiment, read_experiment
from simcluster.experiment.run import run

__all__ = ["BACKENDS", "Experiment", "read_experiment", "run", "run_plan"]
