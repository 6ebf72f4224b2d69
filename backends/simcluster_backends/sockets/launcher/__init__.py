"""The launcher: it starts nodes, watches them and collects their results."""
