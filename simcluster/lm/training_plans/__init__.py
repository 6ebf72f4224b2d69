"""Which algorithm and split train a model fastest on a topology, from closed forms: nothing is simulated."""
