"""Engines of other projects, which compute a whole model on one node; each is optional."""
