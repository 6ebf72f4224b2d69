"""Correlated failures: the nodes of a rack go down, and come back, together."""


def rack_failures(env, cluster, *, racks: list[list[str]], mean_s: float = 3600.0, repair_s: float = 600.0):
    """Let the power of each of *racks* fail after *mean_s* on average, for *repair_s*."""

    def rack(names):
        rng = cluster.rng(f"rack of {names[0]}")
        nodes = [cluster.node(name) for name in names]
        while True:
            yield env.timeout(rng.exponential(mean_s))
            for node in nodes:
                node.crash(returns=True)
            yield env.timeout(repair_s)
            for node in nodes:
                node.restart()

    yield env.all_of([env.process(rack(names)) for names in racks])
