"""Machines whose fans fail, and a crew that repairs them, one machine per person."""

import simpy


def repair_crew(env, cluster, *, crew: int = 2, mean_s: float = 3600.0, repair_s: float = 600.0, hot: float = 0.1):
    """Let each machine run at the speed *hot* once its fan fails, until a person of *crew* has repaired it.

    A fan holds for *mean_s*, and a repair takes *repair_s*, both on average.
    """
    people = simpy.Resource(env, capacity=crew)

    def machine(node):
        rng = cluster.rng(node.name)
        while True:
            yield env.timeout(rng.exponential(mean_s))
            node.speed = hot
            with people.request() as person:
                yield person
                yield env.timeout(rng.exponential(repair_s))
            node.speed = 1.0

    yield env.all_of([env.process(machine(node)) for node in cluster.nodes])
