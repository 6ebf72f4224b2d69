"""Parameter servers: workers push gradients to a server that holds the model."""
