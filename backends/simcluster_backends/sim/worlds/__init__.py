"""Worlds in virtual time: the handles that they act through, and the clock's part in running them."""
