"""Results of sweeps: figures against swept keys, and the pages report.html and explorer.html."""
