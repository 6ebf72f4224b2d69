"""The process that starts nodes, watches them and collects what they leave."""
