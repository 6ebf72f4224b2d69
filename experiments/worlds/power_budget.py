"""A power budget that machines share: only some of them run at full speed at a time."""

import simpy


def power_budget(
    env, cluster, *, budget_W: float = 1000.0, full_W: float = 400.0, slow: float = 0.25, turn_s: float = 1.0
):
    """Run each machine at the speed *slow*, and for *turn_s* at full speed whenever *full_W* of *budget_W* are left."""
    power = simpy.Container(env, capacity=budget_W, init=budget_W)

    def machine(node):
        while True:
            node.speed = slow
            yield power.get(full_W)
            node.speed = 1.0
            yield env.timeout(turn_s)
            yield power.put(full_W)

    yield env.all_of([env.process(machine(node)) for node in cluster.nodes])
