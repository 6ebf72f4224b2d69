"""The README's animated terminal: a recording of commands, and its picture."""
