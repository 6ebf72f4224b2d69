"""Serve a language model: the program that nodes run, the desk for requests, the HTTP server."""
