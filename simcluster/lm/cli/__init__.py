"""The command line of language models, with one file per command."""
