"""Ctrl-C at random moments, on a busy machine: `make interrupts`.

Each trial draws a command and a moment, starts the command as a shell would, and interrupts it. The
trial fails unless the exit code is 130, the output shows no crash, no process is left, and no
folder of an incomplete run looks like that of a complete one.
"""
