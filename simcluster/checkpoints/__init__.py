"""Checkpoints: what each rank hands in at a step, put into one folder so that whatever ends in between loses nothing.

tree: values and tensors; shard: what a rank hands in; keeper: at the node; gather: joins ranks; manifest, store, disk:
the folder; restore: the way back, also to another number of ranks.
"""
