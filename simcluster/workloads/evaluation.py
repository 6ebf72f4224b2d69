"""Evaluation of a model on held-out samples."""

from __future__ import annotations

import threading
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.compute import HOST
from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.data.samples import Samples
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.deferred import DeferredModel, allocate, is_present, release
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.steps import Loss, outputs_of, trainable_of
from simcluster.workloads.weights import Weights, check_shapes, weights_sha256
from simcluster.workloads.weights_file import WeightsFile

EVALUATION_BATCH = 1024


class UntrainedState:
    """Copies of the tensors of *model* that the optimizer does not change: buffers and frozen
    parameters.
    """

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [buffer.detach().clone() for buffer in model.buffers()]
        self._parameters = [given if given.requires_grad else given.clone() for given in model.parameters()]

    def buffers(self) -> Iterator[Tensor]:
        return iter(self._buffers)

    def parameters(self) -> Iterator[Tensor]:
        """Return an iterator over all parameters in order: copies of the frozen parameters, and the
        live trainable parameters.
        """
        return iter(self._parameters)


class LayerwiseModel:
    """A function that applies the layers of *model* in order. Their weights are read from *file*
    and are in memory only while their layer runs.

    If a layer had other weights before, such as those that a resumed rank began with, they are
    restored after the layer has run.
    """

    def __init__(self, model: nn.Module, file: WeightsFile) -> None:
        self._modules, self._file = modules_in_order(model), file
        self._places = {id(parameter): place for place, (_, parameter) in enumerate(trainable_of(model))}

    def __call__(self, inputs: Any) -> Any:
        value: Any = inputs
        for module in self._modules:
            replaced = [(one, self._replace(one)) for one in module.parameters() if id(one) in self._places]
            value = module(value)
            for parameter, (was_absent, before) in replaced:
                if was_absent:
                    release(parameter)
                elif before is not None:
                    parameter.copy_(before)
        return value

    def _replace(self, parameter: Tensor) -> tuple[bool, Tensor | None]:
        """Overwrite *parameter* with its weights from the file.

        Return (whether *parameter* was absent, its old values if they differ or None).
        """
        place = self._places[id(parameter)]
        if not is_present(parameter):
            allocate(parameter)
            self._file.read_into(place, parameter)
            return True, None
        given = torch.empty_like(parameter)
        self._file.read_into(place, given)
        if torch.equal(given, parameter):
            return False, None
        before = parameter.clone()
        parameter.copy_(given)
        return False, before


class Evaluator:
    """An evaluator of weights. It has a separate *model* on *device*, since the model that trains
    may be in a forward pass.

    Threads take turns. The global random generators are borrowed only if the model *draws*, since
    an algorithm or a training step in another thread may need them. The separate model's weights
    take memory only while they are needed.
    """

    def __init__(
        self, model: nn.Module, loss_function: Loss, samples: Samples, device: torch.device = HOST, *,
        draws: bool = True,
    ) -> None:  # fmt: skip
        self._model = model.eval()
        self._loss = loss_function
        self._samples = samples
        self._device = device
        self._lock, self._draws = threading.Lock(), draws
        self._separate = _separate(model)
        self.release()

    def release(self) -> None:
        """Free the memory of the separate model's weights until the next evaluation."""
        for parameter in self._separate:
            release(parameter)

    def evaluate(
        self, source: nn.Module | UntrainedState, trained: Sequence[Tensor] | WeightsFile, takes: bool = False,
        running: Sequence[str] = (),
    ) -> dict[str, float]:  # fmt: skip
        """Evaluate the weights *trained* together with the buffers and frozen parameters of
        *source*. See `evaluated`.

        *takes*: whether to empty the list *trained* while its tensors are copied, so that they are
        never twice in memory. *running*: the names of the buffers that are replaced by the
        statistics of each held-out batch.
        """
        modules = [self._model.get_submodule(name.rpartition(".")[0]) for name in running]
        device = self._device
        lent = borrowed(0, device=device, others=True) if self._draws else nullcontext()
        with self._lock, torch.no_grad(), lent:
            forward: Callable[..., Any] = self._model
            if isinstance(trained, WeightsFile):
                copy_untrained(self._model, source)
                forward = LayerwiseModel(self._model, trained)
            else:
                copy_into(self._model, source, _emptied(trained) if takes else trained)
            for module in modules:
                module.training = True
            result = evaluated(forward, self._loss, self._samples, device)
            for module in modules:
                module.training = False
            if takes:
                self.release()
        return result


def _separate(model: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters of *model* that share their storage with no other tensor."""
    tensors = [*model.parameters(), *model.buffers()]
    users = Counted(tensor.untyped_storage()._cdata for tensor in tensors)
    return [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad
        and users[parameter.untyped_storage()._cdata] == 1
        and parameter.untyped_storage().nbytes() in (0, parameter.nbytes)
    ]


def _emptied(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors of the list *tensors* in order, and remove each one from the list."""
    assert isinstance(tensors, list)
    tensors.reverse()
    while tensors:
        yield tensors.pop()


def copy_into(model: nn.Module, source: nn.Module | UntrainedState, trainable: Iterable[Tensor]) -> None:
    """Copy buffers and frozen parameters from *source* into *model*, and the tensors *trainable*
    into its other parameters.
    """
    copy_untrained(model, source)
    rest = iter(trainable)
    for mine, given in zip(model.parameters(), source.parameters(), strict=True):
        if given.requires_grad:
            allocate(mine)
            mine.copy_(next(rest))


def copy_untrained(model: nn.Module, source: nn.Module | UntrainedState) -> None:
    """Copy buffers and frozen parameters from *source* into *model*."""
    for mine, given in zip(model.buffers(), source.buffers(), strict=True):
        mine.copy_(given)
    for own, other in zip(model.parameters(), source.parameters(), strict=True):
        if not other.requires_grad:
            own.copy_(other)


def evaluated(
    model: Callable[..., Any], loss_function: Loss, samples: Samples, device: torch.device = HOST
) -> dict[str, float]:
    """Return the "loss" and "accuracy" of *model*, which is on *device*, for *samples*. Return only
    the "loss" if the targets are not classes.
    """
    loss_sum, correct = 0.0, 0
    classes = samples.targets.dim() == 1 and not samples.targets.is_floating_point()
    for start in range(0, len(samples), EVALUATION_BATCH):
        stop = start + EVALUATION_BATCH
        some = Samples(*samples.each(lambda tensor, start=start, stop=stop: tensor[start:stop].to(device)))
        outputs = outputs_of(model, some.inputs)
        loss_sum += loss_function(outputs, some.targets).item() * len(some)
        scores = getattr(outputs, "logits", outputs)
        classes = classes and isinstance(scores, Tensor) and scores.dim() == 2
        if classes:
            correct += int((scores.argmax(1) == some.targets).sum())
    result = {"loss": loss_sum / len(samples)}
    if classes:
        result["accuracy"] = correct / len(samples)
    return result


class Evaluable(Weights):
    """The part of a Replica that evaluates weights on held-out samples.

    A rank that trains a part of the model never holds the whole model. For evaluation it has one
    layer in memory at a time, which it reads from the file of the weights that were gathered last.
    """

    _counter: Counter
    _test: Samples | None
    _evaluator: Evaluator | None = None

    @property
    def running(self) -> Sequence[str]:
        raise NotImplementedError

    def evaluate(self) -> dict[str, float]:
        """Return the "loss" and "accuracy" on the held-out samples: only the "loss" if targets are
        not classes, and an empty dict if there are no such samples.
        """
        return self.evaluate_weights(self.parameters if self._gathered is None else self._gathered)

    def evaluate_by_batch(self) -> dict[str, float]:
        """Evaluate with the statistics of each held-out batch instead of the running statistics.
        Return {} if the model has no running statistics, if it is held in parts, if there are no
        held-out samples, or if the last batch would have only one sample.
        """
        if not self.running or self._test is None or len(self._test) % EVALUATION_BATCH == 1 or self._deferred:
            return {}
        self._evaluator = self._evaluator or self._make_evaluator()
        return self._evaluator.evaluate(self._model, self.parameters, running=self.running)

    @property
    def draws_when_judged(self) -> bool:
        """Whether `evaluate` draws from the global generators."""
        is_whole = self.computes and self._deferred is None
        return is_whole and self._test is not None and self._counter.draws_when_judged(self._test)

    def evaluation(self) -> Callable[[], dict[str, float]]:
        """Return a function that evaluates the present weights, even if they have changed by the
        time that it is called.

        Call the function at most once: it uses up a snapshot.
        """
        source = self.untrained()
        if self._gathered is not None:
            return partial(self.evaluate_weights, self._gathered, source)
        # Make the evaluator's model before the snapshot, since making it takes as much memory as a
        # snapshot.
        if self._test is not None and self._evaluator is None and self.computes:
            self._evaluator = self._make_evaluator()
        return partial(self.evaluate_weights, self.snapshot(), source, takes=True)

    def fingerprint(self) -> object:
        """Return a value that is equal at two moments only if `evaluate` gives equal results at
        both; None if the weights have no values.
        """
        if not self.computes or self._gathered is not None:
            return self._gathered
        untrained = [tensor for tensor in self._model.parameters() if not tensor.requires_grad]
        tensors = [*self.parameters, *untrained, *self._model.buffers()]
        return weights_sha256([str(number) for number in range(len(tensors))], tensors)

    def snapshot(self) -> list[Tensor]:
        """Return copies of the weights."""
        return [parameter.clone() for parameter in self.parameters]

    def untrained(self) -> UntrainedState:
        """Return copies of the tensors that the optimizer does not change: buffers and frozen
        parameters.
        """
        return UntrainedState(self._model)

    def evaluate_weights(
        self, parameters: Sequence[Tensor] | WeightsFile, source: UntrainedState | None = None, *, takes: bool = False
    ) -> dict[str, float]:
        """Evaluate *parameters* instead of the live weights, with buffers and frozen parameters
        from *source* or by default from the live model.

        The live weights do not change. *takes*: whether to empty the list *parameters* as its
        tensors are used.
        """
        if not isinstance(parameters, WeightsFile):
            self._check_shapes("parameters", parameters)
        if self._test is None:
            return {}
        is_own = self._deferred is not None and parameters is self._live
        if is_own or (parameters is self._gathered and source is None):
            return self._evaluate_here()
        if self._evaluator is None:
            self._evaluator = self._make_evaluator(in_parts=isinstance(parameters, WeightsFile))
        return self._evaluator.evaluate(source or self._model, parameters, takes)

    def _make_evaluator(self, *, in_parts: bool = False) -> Evaluator:
        assert self._test is not None
        make_model = self._counter.make_model
        model = DeferredModel(make_model, self.device).model if in_parts else make_model().to(self.device)
        draws = self._counter.counted.draws is not False if in_parts else self._counter.draws_when_judged(self._test)
        return Evaluator(model, self._counter.loss, self._test, self.device, draws=draws)

    def _evaluate_here(self) -> dict[str, float]:
        """Evaluate in the live model, which nothing else uses at this time. A second model might
        not fit in memory.
        """
        assert self._test is not None
        model = self._model.eval()
        with torch.no_grad(), borrowed(0, device=self.device, others=True):
            forward = model if self._gathered is None else LayerwiseModel(model, self._gathered)
            found = evaluated(forward, self._counter.loss, self._test, self.device)
        model.train()
        return found

    def _check_shapes(self, what: str, tensors: Sequence[Tensor]) -> None:
        check_shapes(what, self.names, self.shapes, tensors)
