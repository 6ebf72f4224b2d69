"""This process: how it ends, what interrupts it, its threads, kernels and terminal."""
