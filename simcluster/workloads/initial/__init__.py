"""Initial weights, tensor by tensor: a rank that trains a part of a model need not make the rest."""
