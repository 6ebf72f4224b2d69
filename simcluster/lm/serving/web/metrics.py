"""Metrics in Prometheus's text format, with vLLM's names."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from simcluster.lm.serving.desk.request_broker import PendingAnswer, RequestBroker

_TAIL_S: Final = (0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
FIRST_S: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, *_TAIL_S)
GAP_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, *_TAIL_S)
WHOLE_S: Final = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
LABEL: Final = "model_name"


class Metrics:
    """The metrics of *front* for the model *name*, as an Observer of *front*."""

    def __init__(self, front: RequestBroker, name: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._front = front

        def counter(what: str, words: str) -> Counter:
            return Counter(f"vllm:{what}", words, [LABEL], registry=self._registry).labels(name)

        def gauge(what: str, words: str) -> Gauge:
            return Gauge(f"vllm:{what}", words, [LABEL], registry=self._registry).labels(name)

        def histogram(what: str, words: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"vllm:{what}_seconds", words, [LABEL], buckets=buckets, registry=self._registry)
            return made.labels(name)

        self._running = gauge("num_requests_running", "Requests that are being computed.")
        self._waiting = gauge("num_requests_waiting", "Requests that wait for the engine.")
        self._cache = gauge("kv_cache_usage_perc", "Share of the cache in use; 1 is all of it.")
        self._counters = {
            "preemptions": counter("num_preemptions", "Requests that gave up their cache for others."),
            "prefilled": Counter(
                "simcluster:prefilled_tokens",
                "Tokens that went through the model in chunks, also those computed again.",
                [LABEL],
                registry=self._registry,
            ).labels(name),
            "proposed": counter("spec_decode_num_draft_tokens", "Guesses of tokens that were checked."),
            "accepted": counter("spec_decode_num_accepted_tokens", "Guesses that were right."),
        }
        self._prompts = counter("prompt_tokens", "Tokens of the prompts that were computed.")
        self._generated = counter("generation_tokens", "Tokens of answers.")
        ended = Counter("vllm:request_success", "Answers by how they ended.", [LABEL, "finished_reason"],
                        registry=self._registry)  # fmt: skip
        self._ended = {reason: ended.labels(name, reason) for reason in ("stop", "length", "abort", "error")}
        self._first_s = histogram("time_to_first_token", "From a request to its first token.", FIRST_S)
        self._gap_s = histogram("inter_token_latency", "Between two tokens of an answer.", GAP_S)
        self._whole_s = histogram("e2e_request_latency", "From a request to its end.", WHOLE_S)
        self._queue_s = histogram("request_queue_time", "From a request to when it is first computed.", WHOLE_S)
        self._seen = dict.fromkeys(self._counters, 0)

    def token(self, answer: PendingAnswer) -> None:
        times_s = answer.times_s
        self._generated.inc()
        if len(times_s) > 1:
            self._gap_s.observe(times_s[-1] - times_s[-2])
            return
        self._prompts.inc(len(answer.request.prompt))
        self._first_s.observe(times_s[0] - answer.asked_s)
        if answer.begun_s is not None:
            self._queue_s.observe(max(0.0, answer.begun_s - answer.asked_s))

    def end(self, answer: PendingAnswer, at_s: float) -> None:
        assert answer.outcome is not None
        reason = {"cancelled": "abort"}.get(answer.outcome.reason, answer.outcome.reason)
        self._ended[reason].inc()
        if reason in ("stop", "length"):
            self._whole_s.observe(at_s - answer.asked_s)

    def text(self) -> bytes:
        """Return the current metrics as text. Call this only in the server's thread."""
        load = self._front.last_load
        running = load.running if load is not None else 0
        self._running.set(min(running, self._front.open_requests))
        self._waiting.set(max(0, self._front.open_requests - running))
        if load is not None:
            self._cache.set(load.cache_share)
        # A Counter only takes increments, but *front* has totals.
        before, self._seen = self._seen, dict(self._front.counts)
        for name, one in self._counters.items():
            one.inc(self._seen[name] - before[name])
        return generate_latest(self._registry)
