"""The one process that clusters are compared with does what a textbook would."""

import pytest
import torch

from simcluster.workloads import joined_batches, mnist_mlp, quadratic, train_alone


def averaged(workload, size: int, seed: int, steps: int) -> list[torch.Tensor]:
    """Synchronous training without a cluster: every rank applies the mean of all ranks' gradients."""
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]
    for batches in zip(*(replica.batches() for replica in replicas), strict=True):
        pairs = zip(replicas, batches, strict=True)
        gradients = [replica.loss_and_gradients(batch)[1] for replica, batch in pairs]
        mean = [torch.stack(parts).mean(0) for parts in zip(*gradients, strict=True)]
        for replica in replicas:
            replica.apply(mean)
    assert len({replica.weights_sha256() for replica in replicas}) == 1
    return replicas[-1].snapshot()


def test_joined_batches_are_all_ranks_batches_in_rank_order():
    replicas = [quadratic(batch_size=4).replica(rank, 3, 0, 2) for rank in range(3)]
    separate = [list(replica.batches()) for replica in replicas]
    joined = list(joined_batches(replicas))
    assert [batch.step for batch in joined] == [0, 1]
    for step, batch in enumerate(joined):
        assert len(batch) == 12
        for rank in range(3):
            assert torch.equal(batch.inputs[4 * rank : 4 * rank + 4], separate[rank][step].inputs)
            assert torch.equal(batch.targets[4 * rank : 4 * rank + 4], separate[rank][step].targets)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_averaged_gradients_give_the_weights_of_one_process_on_the_joined_batches(size):
    workload = quadratic(dtype="float64")
    alone, cluster = train_alone(workload, size, 3, 40), averaged(workload, size, 3, 40)
    assert torch.allclose(alone[0], cluster[0], rtol=0, atol=1e-13)


def test_so_they_do_on_digits_with_momentum_clipping_and_unequal_shards():
    workload = mnist_mlp(hidden=16, momentum=0.9, clip_norm=0.5, partition="dirichlet")
    for a, b in zip(train_alone(workload, 3, 0, 20), averaged(workload, 3, 0, 20), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-5)


def test_the_yardstick_tells_sums_from_means():
    workload = quadratic(dtype="float64")
    faster = quadratic(dtype="float64", learning_rate=0.2)
    assert not torch.allclose(train_alone(workload, 2, 3, 5)[0], averaged(faster, 2, 3, 5)[0], atol=1e-3)
