"""State the answer in plain sentences: the goal's value, the bottleneck, the time, what to buy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from simcluster.lab.what_if.critical_path import CriticalPath, PathPart
from simcluster.lab.what_if.effects import LEAST, Effect, by_gain, by_price, is_part, ranked, sufficient
from simcluster.lab.what_if.free import FREE
from simcluster.lab.what_if.goal import Goal
from simcluster.lab.what_if.perturb import Kind
from simcluster.runs import words
from simcluster.runs.seed_quantiles import SAID, kept_by_most
from simcluster.topology import Topology
from simcluster.units import format_bandwidth, format_latency

LEAST_SHARE, MOST_PARTS = 0.02, 4
"""Limits on the listed parts of the critical path: the least share, and the number."""

MOST_LISTED = 4
"""Limit on the number of changes that one sentence lists."""

PERIODS = 8
"""A setting that counts steps is judged only in runs at least this many times as long as its value."""

NAMES: Mapping[Kind, str] = {
    "bandwidth": "the bandwidth of {}",
    "latency": "the latency of {}",
    "loss": "the losses of {}",
    "nic": "{}'s own bandwidth, its network card",
    "overhead": "what {} takes for each message",
    "device": "the device of {}",
    "straggler": "{}, which is a straggler",
    "setting": "the setting {}",
}


def bottleneck(effects: Sequence[Effect], goal: Goal) -> Effect | None:
    """Return the change that gains most; None if none gains a percent.

    Changes on whose gain all seeds agree take precedence. Unless the goal needs learning, only
    changes of the cluster count: a setting that saves time may cost more steps.
    """
    gaining = by_gain([e for e in effects if _counts(e, goal)])
    return next(iter(sorted(gaining, key=lambda found: not found.is_certain)), None)


def sentences(
    goal: Goal,
    base: Mapping[int, float],
    staleness: float | None,
    effects: Sequence[Effect],
    purchases: Sequence[Effect],
    path: CriticalPath,
    topology: Topology,
    *,
    exact: bool = False,
    steps: int | None = None,
) -> list[str]:
    """Return the answer: the goal's value, then the bottleneck, then the rest.

    *exact* says that no run depends on the seed. *steps* is the number of steps per worker of each
    run; None if the goal is not measured over a fixed number of steps.
    """
    seeds = None if exact else len(base)
    best = bottleneck(effects, goal)
    found = [_now(goal, base, exact)]
    if best is not None:
        found.append(_named(best, goal, staleness, seeds))
    else:
        what = "change" if goal.learns else "change of a link or a device"
        tried = sum(e.relative is not None and _counts(e, goal) for e in effects)
        found.append(f"No single {what} gains a percent, of {tried}: there are several bottlenecks, or none.")
    parts = [e for e in by_gain(effects) if is_part(e) and e.is_certain and e is not best]
    alike = [e for e in parts if best is not None and _alike(e, best, goal)]
    if alike:
        found.append(f"Any of these changes alone gains the same: {_some(alike)}.")
    others = [e for e in parts if e not in alike]
    if others:
        found.append(f"Next, each alone: {_next(others, goal)}.")
    found += _uncertain(effects, best)
    found += _path(path, topology)
    needed = _needed_steps(effects)
    brief = {} if steps is None else {name: least for name, least in needed.items() if least > steps}
    found += _of_settings([e for e in effects if e.change.part not in brief], best, goal)
    found += _free(effects, goal)
    found.append(_purchase(purchases, goal, seeds))
    if steps is not None:
        found.insert(-1, _measured_over(steps, brief))
    return found


def _next(effects: Sequence[Effect], goal: Goal) -> str:
    """Describe the two largest gains of *effects*, each with all changes that gain as much."""
    groups: list[list[Effect]] = []
    for effect in effects:
        if groups and _alike(effect, groups[-1][0], goal):
            groups[-1].append(effect)
        else:
            groups.append([effect])
    each = ["each " * (len(group) > 1) + less(group[0]) for group in groups]
    listed = [f"{_some(group)} ({gain})" for group, gain in zip(groups, each, strict=True)][:2]
    return "; ".join(listed) if max(map(len, groups[:2])) > 1 else words.listing(listed)


def _alike(effect: Effect, other: Effect, goal: Goal) -> bool:
    """Return whether both effects have the same numbers after rounding."""
    return less(effect) == less(other) and goal.value(effect.value) == goal.value(other.value)


def _uncertain(effects: Sequence[Effect], best: Effect | None) -> Iterator[str]:
    """Yield sentences on the changes whose gain the calibration leaves uncertain.

    One lists those that may gain as much as *best*, another those that may have no effect.
    """
    as_good = [e for e in by_gain(effects) if best is not None and e is not best and e.overlaps(best)]
    if as_good:
        yield f"Within the uncertainty of the calibration as good: {_some(as_good)}."
    within = [e for e in ranked(effects) if e.is_within and abs(e.relative or 0.0) >= LEAST]
    if within:
        yield f"Within the uncertainty of the calibration, and so no certain effect: {_some(within)}."


def _some(effects: Sequence[Effect]) -> str:
    return words.some([e.change.label for e in effects], MOST_LISTED)


def _now(goal: Goal, base: Mapping[int, float], exact: bool) -> str:
    """Return a sentence with the goal's value in the unchanged experiment."""
    values = list(base.values())
    seeds = "with any seed" if exact else "one seed"
    if len(values) > 1:
        seeds = f"the mean of {len(values)} seeds"
    low, high = goal.value(min(values)), goal.value(max(values))
    spread = f", {low} to {high}" if low != high else ""
    if (most := kept_by_most(values)) is not None and spread:
        spread += f", at most {goal.value(most)} {SAID}"
    phrase = goal.phrase[0].upper() + goal.phrase[1:]
    return f"{phrase} is {goal.value(fmean(values))} ({seeds}{spread})."


def _named(best: Effect, goal: Goal, staleness: float | None, seeds: int | None) -> str:
    """Return sentences that name the bottleneck.

    *seeds* is the number of seeds; None if the seed does not matter.
    """
    name, what = NAMES[best.change.kind].format(best.change.part), best.change.label.partition(": ")[2]
    if best.change.kind == "straggler":
        what = "a device as fast as its numbers say"
    text = f"The bottleneck is {name}: with {what} {goal.phrase} is {goal.value(best.value)}, {less(best)}"
    text += f"{_spread(best, seeds)}."
    fresher = best.staleness is not None and staleness is not None and best.staleness < staleness * 0.9
    if best.change.kind == "setting" and fresher:
        text = text.replace(f"is {name}:", f"is staleness ({name}):", 1)
        old, new = words.number(staleness), words.number(best.staleness)
        text += f" What is applied is {old} updates old on average, then {new}."
    return text


def less(effect: Effect) -> str:
    """Return the effect as a share of the goal, such as "12 % less"."""
    return f"{words.share(abs(effect.gain))} {'less' if effect.gain >= 0 else 'more'}"


def _spread(effect: Effect, seeds: int | None) -> str:
    if seeds == 1:
        return "; one seed, so its certainty is unknown"
    if effect.lowest is None or effect.highest is None or seeds is None:
        return ""
    low, high = sorted((-effect.lowest, -effect.highest))
    if words.share(abs(low)) == words.share(abs(high)) and low * high > 0:
        return f", with each of {seeds} seeds"
    sure = "" if effect.is_certain else "; the seeds disagree, so more seeds are needed"
    return f" ({low * 100:.3g} to {high * 100:.3g} % over {seeds} seeds{sure})"


def _path(path: CriticalPath, topology: Topology) -> Iterator[str]:
    if told := parts_listed(path.parts, topology):
        span = f"the first {words.seconds(path.end_s)}, which the trace covers" if path.cut_short else "the time"
        yield f"Of {span}, {told}."


def parts_listed(parts: Sequence[PathPart], topology: Topology) -> str:
    """Describe the longest of *parts* of the critical path; "" if all are too short to mention."""
    told = [part for part in parts if part.share >= LEAST_SHARE][:MOST_PARTS]
    return words.listing([f"{words.share(part.share)} went {in_words(part, topology)}" for part in told])


def in_words(part: PathPart, topology: Topology) -> str:
    """Describe *part* as a phrase, such as 'into waiting for messages to pass pi4-mini3'."""
    between = f"messages between {' and '.join(sorted(part.between))}" if part.between else "messages"
    if part.kind == "compute":
        device = topology.nodes[part.where].device
        return f"into waiting for {part.where} to compute ({device.name if device else 'no device'})"
    if part.kind == "nic":
        own = format_bandwidth(topology.nodes[part.where].host_bandwidth_Bps)
        return f"into waiting for {between} to pass {part.where}'s network card ({own})"
    if part.kind == "idle":
        return f"by without anything that {part.where} was seen to wait for, such as a timer"
    link = next(link for link in topology.links if link.name == part.where)
    if part.kind == "latency":
        return f"into the latency of {part.where} ({format_latency(link.latency_s)}) for {between}"
    return f"into waiting for {between} to pass {part.where} ({format_bandwidth(link.bandwidth_Bps)})"


def _of_settings(effects: Sequence[Effect], best: Effect | None, goal: Goal) -> Iterator[str]:
    settings = [e for e in by_gain(effects) if e.change.kind == "setting" and e.is_certain and e is not best]
    if not settings:
        return
    text = f"Of the settings, {settings[0].change.label} gains most: {goal.phrase} is {less(settings[0])}"
    yield text + ("." if goal.learns else "; what that does to learning is not in a timing.")


def _needed_steps(effects: Sequence[Effect]) -> dict[str, int]:
    """Return name of a setting that counts steps -> the steps that a run needs to judge it."""
    settings = [e.change for e in effects if e.change.kind == "setting"]
    values = [(one.part, value) for one in settings for value in one.overrides.values() if type(value) is int]
    return {name: PERIODS * max(value for part, value in values if part == name) for name, _ in values}


def _measured_over(steps: int, brief: Mapping[str, int]) -> str:
    text = f"Measured over {words.plural(steps, 'step')} per worker (stop.steps)"
    if not brief:
        return f"{text}."
    return f"{text}, too few to judge {words.listing(list(brief))}: {max(brief.values())} would do."


def _counts(effect: Effect, goal: Goal) -> bool:
    """Return whether the change of *effect* may be the bottleneck."""
    return is_part(effect) or (goal.learns and effect.change.kind == "setting")


def _free(effects: Sequence[Effect], goal: Goal) -> Iterator[str]:
    free = [e for e in by_gain(effects) if e.change.kind in FREE and e.is_certain]
    if free:
        best, *others = free
        then = f"{goal.phrase} is {goal.value(best.value)}, {less(best)}"
        text = f"At no cost, the most is gained by {best.change.label}: {then}"
        more = words.listing([f"{e.change.label} ({less(e)})" for e in others[:2]])
        yield text + (f"; next, each alone: {more}." if others else ".")


def _purchase(purchases: Sequence[Effect], goal: Goal, seeds: int | None) -> str:
    """Return a sentence that recommends purchases.

    All seeds must agree on a purchase: money should not be spent on noise.
    """
    worth = by_price([e for e in purchases if e.gain >= LEAST and e.is_certain])
    if not purchases:
        return "The list of parts has nothing faster for the bottleneck."
    if not worth:
        faster = words.plural(len(purchases), "part")
        return f"No purchase surely gains a percent; {faster} of the list would be faster."
    best = worth[0]
    price = best.change.price_usd or 0.0
    text = (
        f"The best purchase is {best.change.label}, {price:g} USD: {goal.phrase} is then {goal.value(best.value)}, "
        f"{less(best)}, {words.share(best.per_usd)} for each dollar"
    )
    text += f"{_spread(best, seeds) if seeds != 1 else ''}."
    same = [e for e in worth if e is not best and e.change.price_usd == price and _alike(e, best, goal)]
    if same:
        text += f" Any of these is as good: {_some(same)}."
    most = sufficient(worth)
    if most.gain > best.gain + LEAST:
        text += f" The most is gained by {most.change.label}, {most.change.price_usd:g} USD: {less(most)}."
    return text
