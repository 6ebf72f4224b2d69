"""Parts of report.html: any window of a run, and what sums up many nodes."""
