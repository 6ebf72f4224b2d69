"""What the files of the papers share: what a paper is, where runs are made, clusters, a quadratic."""

from experiments.papers.frame.clusters import BOWL, served, star
from experiments.papers.frame.lab import Lab
from experiments.papers.frame.paper import Check, Paper, agrees, exceeds, verdict_of

__all__ = ["BOWL", "Check", "Lab", "Paper", "agrees", "exceeds", "served", "star", "verdict_of"]
