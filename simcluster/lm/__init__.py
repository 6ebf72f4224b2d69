"""Language models: predict what a cluster can hold and how fast it answers, and serve them.

Start with `engine/scheduler.py`, which chooses the tokens of each pass through a model, and with
`serving/run.py`, which runs the engine on a cluster. `models` and `headers` read files, `load`
makes requests and measures answers, `serving` has the API and the program of its nodes. `plan`
predicts memory and speed; `training_plans` predicts them for a training run.
"""
