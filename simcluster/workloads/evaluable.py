"""The evaluation of a replica on held-out samples: now, or of its weights as they are now, while it trains on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.evaluation import ByLayer, Evaluator, Untrained, evaluated
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.deferred import Deferred
from simcluster.workloads.samples import Samples
from simcluster.workloads.weights import Weights, check_shapes
from simcluster.workloads.weights_file import WeightsFile


class Evaluable(Weights):
    """The part of a Replica that evaluates weights on *_test*.

    A rank that trains a part of the model never holds the whole: it has the layers in memory one at a time, each from
    the file of the weights that were gathered last.
    """

    _counter: Counter
    _test: Samples | None
    _evaluator: Evaluator | None = None

    def evaluate(self) -> dict[str, float]:
        """Return {"loss", "accuracy"} on the held-out samples; {"loss"} without classes, {} without samples."""
        return self.evaluate_weights(self.parameters if self._gathered is None else self._gathered)

    def evaluation(self) -> Callable[[], dict[str, float]]:
        """Return the work of `evaluate` for the present weights, whatever they are when it runs. It runs once."""
        held: list[Sequence[Tensor] | WeightsFile] = [self.snapshot() if self._gathered is None else self._gathered]
        source = self.untrained()
        return lambda: self.evaluate_weights(held.pop(), source)

    def snapshot(self) -> list[Tensor]:
        """Return copies of the weights."""
        return [parameter.clone() for parameter in self.parameters]

    def untrained(self) -> Untrained:
        """Return copies of what the optimizer does not change: buffers, frozen parameters."""
        return Untrained(self._model)

    def evaluate_weights(
        self, parameters: Sequence[Tensor] | WeightsFile, source: Untrained | None = None
    ) -> dict[str, float]:
        """Evaluate *parameters* instead of the live weights, which are not touched; the rest is that of *source*."""
        in_file = isinstance(parameters, WeightsFile)
        if not isinstance(parameters, WeightsFile):
            self._check_shapes("parameters", parameters)
        if self._test is None:
            return {}
        is_own = self._deferred is not None and parameters is self._live
        if is_own or (parameters is self._gathered and source is None):
            return self._evaluate_here()
        if self._evaluator is None:
            make_model = self._counter.make_model
            model = Deferred(make_model, self.device).model if in_file else make_model().to(self.device)
            self._evaluator = Evaluator(model, self._counter.loss, self._test, self.device)
        return self._evaluator.evaluate(source or self._model, parameters)

    def _evaluate_here(self) -> dict[str, float]:
        """Evaluate the live model, which nothing else uses now: the memory may not hold a second one."""
        assert self._test is not None
        model = self._model.eval()
        with torch.no_grad(), borrowed(0, device=self.device):
            forward = model if self._gathered is None else ByLayer(model, self._gathered)
            found = evaluated(forward, self._counter.loss, self._test, self.device)
        model.train()
        return found

    def _check_shapes(self, what: str, tensors: Sequence[Tensor]) -> None:
        check_shapes(what, self.names, self.shapes, tensors)
