"""Presets: named devices and links, and generators of regular topologies."""
