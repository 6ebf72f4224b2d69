"""The command line of language models: a file for each command."""
