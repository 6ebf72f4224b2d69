"""The README's animated terminal: recorded commands, and the picture of them."""
