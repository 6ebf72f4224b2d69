"""A language model served: the program that nodes run, its front desk, its server."""
