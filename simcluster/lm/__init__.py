"""Language models: what a cluster can hold and how fast it answers (`plan`), and the engine that does it.

Start with `engine/scheduler.py`, which decides what a step computes, and `serving/run.py`, which has a cluster do it.
`models` and `headers` read files, `load` makes requests and counts answers, `serving` is the API with its nodes. Go
deeper into `plan` for predictions, and into `training_plans` for those of a training run.
"""
