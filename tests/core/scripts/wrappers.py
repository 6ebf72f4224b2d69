"""Every way that torch has to train on several ranks, each against the same training in one process.

A rank's batch is that of its number. The loss of a step is the mean over ranks, which is what all of them average.
"""

import copy
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint  # noqa: TID251  it is a script of a user
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict  # noqa: TID251
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, STEPS = 16, 8, 3
Batches = Sequence[tuple[Tensor, Tensor]]


class Net(nn.Module):
    """An MLP with a part that the forward pass may leave out."""

    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = norm or nn.LayerNorm(WIDTH)
        self.first = nn.Linear(WIDTH, 2 * WIDTH)
        self.second = nn.Linear(2 * WIDTH, WIDTH)
        self.extra = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor, extra: bool = True) -> Tensor:
        hidden = self.second(torch.relu(self.first(self.norm(inputs))))
        return self.extra(hidden) if extra else hidden


def net(norm: nn.Module | None = None) -> Net:
    torch.manual_seed(0)
    return Net(norm)


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    return inputs, torch.randn(BATCH, WIDTH, generator=generator)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(outputs.float(), targets)


def adam(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Callable[[int], Batches], **how: bool
) -> list[float]:
    """Return the loss of every step, each on the mean over *batches* of it."""
    losses = []
    for step in range(STEPS):
        parts = batches(step)
        loss = sum(loss_of(model(inputs, **how), targets) for inputs, targets in parts) / len(parts)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def alone(size: int, **how: bool) -> list[float]:
    """Return the losses of the training in one process, on the batches of *size* ranks."""
    model = net()
    return train(model, adam(model.parameters()), lambda step: [batch(step, one) for one in range(size)], **how)


def together(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, **how: bool) -> list[float]:
    """Return the losses of a training in which each rank has its own batch."""
    losses = torch.tensor(train(model, optimizer, lambda step: [batch(step, rank)], **how))
    dist.all_reduce(losses)
    return (losses / dist.get_world_size()).tolist()


def same(found: list[float], expected: list[float], rtol: float = 1e-5) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=rtol, atol=1e-7)


def replicas(rank: int, size: int) -> None:
    expected = alone(size)
    for how in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001}):
        model = DistributedDataParallel(net(), device_ids=None, **how)
        same(together(model, adam(model.parameters()), rank), expected)
    model = DistributedDataParallel(net(), find_unused_parameters=True)
    same(together(model, adam(model.parameters()), rank, extra=False), alone(size, extra=False))
    for view in (False, True):
        model = DistributedDataParallel(net())
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.Adam, parameters_as_bucket_view=view, lr=0.01
        )
        same(together(model, optimizer, rank), expected)
    # Gradients of one more batch are added before the one that is averaged.
    model, whole = DistributedDataParallel(net()), net()
    with model.no_sync():
        loss_of(model(batch(8, rank)[0]), batch(8, rank)[1]).backward()
    loss_of(model(batch(9, rank)[0]), batch(9, rank)[1]).backward()
    for step in (8, 9):
        for one in range(size):
            (loss_of(whole(batch(step, one)[0]), batch(step, one)[1]) / size).backward()
    torch.testing.assert_close(model.module.first.weight.grad, whole.first.weight.grad)


def hooks(rank: int, size: int) -> None:
    expected = alone(size)

    def doubled(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        future = dist.all_reduce(bucket.buffer() * 2, async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / (2 * size))

    power = powerSGD_hook.PowerSGDState(None, WIDTH, start_powerSGD_iter=2, min_compression_rate=0)
    for state, hook, rtol in (
        (None, doubled, 1e-5),
        (None, default_hooks.allreduce_hook, 1e-5),
        (None, default_hooks.fp16_compress_hook, 1e-3),
        (power, powerSGD_hook.powerSGD_hook, 1e-4),  # of full rank: nothing is lost but by rounding
    ):
        model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
        model.register_comm_hook(state, hook)
        same(together(model, adam(model.parameters()), rank), expected, rtol)


def uneven(rank: int, size: int) -> None:
    """The last rank has one batch, the others two: what it does not give counts as zero."""
    model, whole = DistributedDataParallel(net()), net()
    optimizer, reference = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(whole.parameters(), lr=0.1)
    with Join([model]):
        for step in range(1 if rank == size - 1 else 2):
            loss_of(model(batch(step, rank)[0]), batch(step, rank)[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
    for step in range(2):
        for one in range(size - step):
            (loss_of(whole(batch(step, one)[0]), batch(step, one)[1]) / size).backward()
        reference.step()
        reference.zero_grad()
    if rank < size - 1:
        torch.testing.assert_close(model.module.second.weight, whole.second.weight)


def norms(rank: int, size: int) -> None:
    """Statistics over all ranks' batches are those of one large batch."""
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net(nn.BatchNorm1d(WIDTH))).cuda())
    whole = net(nn.BatchNorm1d(WIDTH))

    def joined(step: int) -> Batches:
        parts = [batch(step, one) for one in range(size)]
        return [(torch.cat([inputs for inputs, _ in parts]), torch.cat([targets for _, targets in parts]))]

    same(together(model, adam(model.parameters()), rank), train(whole, adam(whole.parameters()), joined))
    torch.testing.assert_close(model.module.norm.running_var, whole.norm.running_var)


def shards(rank: int, size: int) -> None:
    expected = alone(size)
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        model = FullyShardedDataParallel(
            net(), sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=0
        )
        same(together(model, adam(model.parameters()), rank), expected, 2e-4)
    flat = init_device_mesh("cuda", (size,))
    grid = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    mixed = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for mesh, how, rtol in ((flat, {}, 2e-4), (grid, {}, 2e-4), (flat, mixed, 2e-2)):
        model = net()
        model.first = checkpoint_wrapper(model.first)
        for module in (model.first, model.second, model):
            fully_shard(module, mesh=mesh, **how)
        same(together(model, adam(model.parameters()), rank), expected, rtol)
    saved = {name: value.full_tensor() for name, value in get_model_state_dict(model).items()}
    checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id="saved")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = {"model": get_model_state_dict(model)}
    checkpoint.load(state, checkpoint_id="saved")
    set_model_state_dict(model, state["model"])
    for name, value in get_model_state_dict(model).items():
        torch.testing.assert_close(value.full_tensor(), saved[name], rtol=0, atol=0)


def tensors(rank: int, size: int) -> None:
    """Every rank has a part of each layer, and of the rows of a batch that its group of ranks has in common."""
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "first": ColwiseParallel(input_layouts=Shard(0)),
        "second": RowwiseParallel(output_layouts=Replicate()),
    }

    def part(step: int, number: int, place: int, parts: int) -> Batches:
        inputs, targets = batch(step, number)
        return [(inputs.chunk(parts)[place], targets)]

    for device in ("cpu", "cuda"):
        model = parallelize_module(net().to(device), init_device_mesh(device, (size,)), plan)
        found = train(model, adam(model.parameters()), lambda step: part(step, 0, rank, size))
        same(found, alone(1), 2e-4)
    grid = init_device_mesh("cuda", (2, size // 2), mesh_dim_names=("data", "tensor"))
    model = fully_shard(parallelize_module(net(), grid["tensor"], plan), mesh=grid["data"])
    number, place = grid.get_coordinate()
    losses = torch.tensor(train(model, adam(model.parameters()), lambda step: part(step, number, place, size // 2)))
    dist.all_reduce(losses)
    same((losses / size).tolist(), alone(2), 2e-4)


def stages(rank: int, size: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(size)])
    whole = copy.deepcopy(layers)
    expected = train(whole, adam(whole.parameters()), lambda step: [batch(step, 0)])
    for kind in (ScheduleGPipe, Schedule1F1B):
        model = copy.deepcopy(layers[rank])
        schedule = kind(PipelineStage(model, rank, size, torch.device("cuda")), n_microbatches=4, loss_fn=loss_of)
        optimizer = adam(model.parameters())
        found = []
        for step in range(STEPS):
            inputs, targets = batch(step, 0)
            losses: list[Tensor] = []
            how = {"target": targets, "losses": losses} if rank == size - 1 else {}
            schedule.step(*[inputs] if rank == 0 else [], **how)
            optimizer.step()
            optimizer.zero_grad()
            mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
            dist.broadcast(mean, src=size - 1)
            found.append(float(mean))
        same(found, expected)


CHECKS = (replicas, hooks, uneven, norms, shards, tensors, stages)


def main() -> None:
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in CHECKS:
        check(rank, size)
        print(f"{check.__name__} good", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
