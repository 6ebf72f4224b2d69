"""Workers push gradients to a server that holds the model."""
