"""The README's second picture: speed-ups of shelves where distribution pays, predicted and measured."""
