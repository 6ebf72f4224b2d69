"""A batch queue on every machine: its jobs preempt the training."""

import simpy


def batch_queue(env, cluster, *, every_s: float = 10.0, lasts_s: float = 2.0):
    """Freeze each node for *lasts_s* when a job comes, *every_s* after the last one has ended."""

    def training(node, machine):
        while True:
            with machine.request(priority=1) as turn:
                yield turn
                try:
                    yield env.event()  # which never happens: until a job preempts
                except simpy.Interrupt:
                    node.freeze()
            with machine.request(priority=1) as turn:
                yield turn
                node.thaw()

    def jobs(machine):
        while True:
            yield env.timeout(every_s)
            with machine.request(priority=0) as job:
                yield job
                yield env.timeout(lasts_s)

    machines = {node: simpy.PreemptiveResource(env) for node in cluster.nodes}
    processes = [env.process(training(*pair)) for pair in machines.items()]
    yield env.all_of(processes + [env.process(jobs(machine)) for machine in machines.values()])
