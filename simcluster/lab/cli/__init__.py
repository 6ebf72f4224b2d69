"""The command line of the lab: one file per command."""
