"""Worlds in virtual time: the clock's part in running them."""
