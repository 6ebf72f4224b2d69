"""Gossip: ranks average with their neighbours in an overlay."""
