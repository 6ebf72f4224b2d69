"""`make slurm`: sweeps on a real Slurm on this machine."""
