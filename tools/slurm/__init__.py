"""Sweeps on a real Slurm on this machine: `make slurm`."""
