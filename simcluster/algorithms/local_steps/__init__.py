"""Local steps: ranks take several local steps between exchanges."""
