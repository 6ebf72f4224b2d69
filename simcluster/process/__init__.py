"""The current process: its end, interrupts, threads, memory, kernels and terminal."""
