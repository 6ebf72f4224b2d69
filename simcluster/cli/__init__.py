"""The command line, which turns arguments into calls of the library."""
