"""Initial weights that are made tensor by tensor, so that a rank that trains a part of a model need
not make the rest.
"""
