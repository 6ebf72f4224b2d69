"""Data sets as tensors, their partition over ranks, and the batches drawn from them."""
