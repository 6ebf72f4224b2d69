"""Optimizers do what torch's do, and refuse what they would ignore."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from simcluster.errors import UsageError
from simcluster.workloads import adamw, sgd
from simcluster.workloads.steps import take_step


def test_sgd_steps_against_the_gradient_and_momentum_remembers_it():
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = sgd(0.1, momentum=0.5)([weight])
    for _ in range(2):
        weight.grad = torch.tensor([2.0], dtype=torch.float64)
        optimizer.step()
    # 1 - 0.1 * 2 = 0.8, then the buffer is 0.5 * 2 + 2 = 3: 0.8 - 0.3 = 0.5.
    assert weight.item() == pytest.approx(0.5, abs=1e-15)


def test_adamw_first_steps_by_its_learning_rate_and_decays():
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = adamw(0.1, weight_decay=0.5)([weight])
    weight.grad = torch.tensor([123.0], dtype=torch.float64)
    optimizer.step()
    # Decay: 1 - 0.1 * 0.5; then the normalised first step is lr * g / |g|.
    assert weight.item() == pytest.approx(0.95 - 0.1, abs=1e-9)


@pytest.mark.parametrize("make", [sgd, adamw])
def test_a_step_calls_its_hooks_and_shows_in_a_profile(make):
    weight = nn.Parameter(torch.ones(2))
    optimizer, called = make(0.1)([weight]), []
    weight.grad = torch.ones(2)
    optimizer.step()
    handle = optimizer.register_step_post_hook(lambda *_: called.append("after"))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert called == ["after"]
    with torch.autograd.profiler.profile() as profile:
        optimizer.step()
    assert any(event.name.startswith("Optimizer.step#") for event in profile.function_events)


@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("learning_rate", [math.nan, math.inf, 0.0, -0.1])
def test_a_learning_rate_that_cannot_learn_is_refused(make, learning_rate):
    with pytest.raises(UsageError, match="learning_rate: found"):
        make(learning_rate)


def test_all_wrong_settings_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        sgd(math.nan, momentum=1.0, weight_decay=-1.0)
    assert [problem.key for problem in caught.value.problems] == ["learning_rate", "momentum", "weight_decay"]


@pytest.mark.parametrize(
    ("make", "dtype", "says"),
    [
        (
            sgd(1e300),
            torch.float32,
            r"learning_rate = 1e\+300 at step 7 of the optimizer; the weights hold at most",
        ),
        (sgd(0.1, weight_decay=1e200), torch.float32, r"weight_decay = 1e\+200 at step 7"),
        (lambda parameters: torch.optim.SGD(parameters, torch.tensor(1e300).double()), torch.float32, None),
        (sgd(1e300), torch.float64, None),
    ],
)
def test_a_factor_that_the_weights_cannot_hold_is_named_with_its_step(make, dtype, says):
    weight = nn.Parameter(torch.ones(2, dtype=dtype))
    if says is None:
        take_step(make([weight]), [weight], [torch.ones(2, dtype=dtype)], None, 7)
        return
    with pytest.raises(OverflowError, match=says):
        take_step(make([weight]), [weight], [torch.ones(2, dtype=dtype)], None, 7)


@pytest.mark.slow
def test_a_step_imports_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from simcluster.workloads.operator_costs import elementwise_cost\n"
        "from simcluster.workloads.optimizers import adamw, sgd\n"
        "for make in (sgd(0.1, 0.9), adamw(0.1)):\n"
        "    weight = torch.nn.Parameter(torch.ones(3))\n"
        "    optimizer = make([weight])\n"
        "    weight.grad = torch.ones(3)\n"
        "    elementwise_cost(optimizer.step)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
