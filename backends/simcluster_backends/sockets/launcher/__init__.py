"""The launcher: start nodes, watch them and collect their results."""
