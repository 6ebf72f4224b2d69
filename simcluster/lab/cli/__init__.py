"""The command line of the lab: a file for each command."""
