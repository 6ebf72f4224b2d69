"""Ctrl-C at random moments, on a busy machine: `make interrupts`.

Each trial draws a command and a moment, starts the command as a shell would, interrupts it, and demands exit code 130,
no word of an abort, no process that is left, and no run folder that reads as a whole run and is none.
"""
