"""Other engines: requests get the tokens of this project's own, and what they cannot do is refused in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.other_engines.choice import RUNNING, check_engine
from simcluster.lm.plan.engines import DEFAULT, ENGINES
from simcluster.lm.request import Request
from simcluster.lm.serving.request_options import RequestOptions, setup_of
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import Topology
from tests.support import clusters
from tests.support.gguf_models import write_gguf
from tests.support.stand_ins import LlamaStandIn, mlx_modules
from tests.support.tiny_models import model_of, write_folder

LAYERS = 4
REPEATS = (3, 1, 4, 1, 5) * 3
PROMPTS = ((3, 1, 4, 1, 5, 9, 2, 6, 5, 3), (60, 61), (100, 7, 8), REPEATS, (3, 1, 4, 1, 5, 9, 2, 6, 11))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a tiny model in the form that each engine reads."""
    path = tmp_path_factory.mktemp("models")
    model = model_of("llama", rope_parameters={"rope_type": "default", "rope_theta": 10_000.0})
    return {"llama.cpp": write_gguf(path / "tiny.gguf", model, "F32"), "mlx": write_folder(path / "tiny", model)}


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> LlamaStandIn:
    found = LlamaStandIn()
    _install(monkeypatch, {"llama_cpp": found})
    return found


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, llama: LlamaStandIn) -> None:
    _install(monkeypatch, mlx_modules())


def _install(monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]) -> None:
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("llama_cpp", "mlx"):  # they keep the stand-in of an earlier test
        monkeypatch.delitem(sys.modules, f"simcluster.lm.other_engines.{name}", raising=False)


def answered(path: Path, engine: str, prompts: Any = PROMPTS, nodes: int = 1, most: int = 12) -> ServingResult:
    shape = open_model(str(path)).shape
    limits = EngineLimits(60, 256, shape.vocabulary, 4, 4, running=RUNNING, guesses=2, kept=RUNNING)
    requests = tuple(Request(str(i), prompt, most) for i, prompt in enumerate(prompts))
    kind = "alone" if nodes == 1 else "replicas"
    layout = PlacementLayout(kind, tuple(range(nodes)), (LAYERS,) * nodes)  # type: ignore[arg-type]
    setup = Setup(str(path), shape, "f32", "real", layout, limits, False, requests=requests, engine=engine)
    return answer_all(setup, star_for(engine))


def star_for(engine: str) -> Topology:
    """Return a star of two nodes, which are Macs for mlx."""
    device = replace(clusters.IDEAL, computes_on="mps" if engine == "mlx" else "cpu")
    return clusters.star(2, n0=device, n1=device)


def tokens(found: ServingResult) -> list[tuple[int, ...]]:
    return [one.tokens for one in found.answers.values()]


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("engine", ["llama.cpp", "mlx"])
def test_an_engine_answers_with_the_tokens_of_ours(models: dict[str, Path], engine: str, nodes: int) -> None:
    found = answered(models[engine], engine, nodes=nodes)
    own = answered(models[engine], DEFAULT, nodes=nodes)
    assert tokens(found) == tokens(own)
    # Guesses were right and wrong, so tokens were dropped; prompts came in chunks of 4.
    assert 0 < found.accepted < found.proposed == own.proposed


def test_llama_cpp_never_has_more_sequences_or_tokens_than_it_has_room_for(
    models: dict[str, Path], llama: LlamaStandIn
) -> None:
    prompts = [(i, *range(1, 5 + i % 3)) for i in range(100, 140)]
    found, own = (tokens(answered(models["llama.cpp"], engine, prompts, most=2)) for engine in ("llama.cpp", DEFAULT))
    assert found == own
    (context,) = llama.contexts
    assert context.params.n_ctx == 240
    assert context.params.n_seq_max == 4 * RUNNING
    assert RUNNING // 2 < context.most_sequences <= 3 * RUNNING


def test_a_prefix_is_shared_in_an_engine_too(models: dict[str, Path], llama: LlamaStandIn) -> None:
    # The second prompt begins with two chunks of the first one: 8 of its 9 tokens are not computed again.
    prompts = (PROMPTS[0], PROMPTS[4])
    setups = [answered(models["llama.cpp"], engine, prompts) for engine in ("llama.cpp", DEFAULT)]
    assert setups[0].prefilled == setups[1].prefilled


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("engine", "changed", "said"),
    [
        ("llama.cpp", {"placement": "pipeline"}, "pipeline with the engine llama.cpp, expected alone or replicas"),
        ("llama.cpp", {"placement": "tensor"}, "tensor with the engine llama.cpp, expected alone or replicas"),
        ("llama.cpp", {"weights": "q4"}, "weights: found 'q4', expected none: llama.cpp keeps the format of the file"),
        ("llama.cpp", {"model": "mlx"}, "found tiny, of another form, expected a GGUF file, which llama.cpp reads"),
        ("mlx", {"model": "llama.cpp"}, "tiny, of another form, expected a folder with a config.json, which mlx reads"),
        ("exo", {}, "found 'exo', expected transformers, llama.cpp, mlx; exo is for `plan`"),
        ("llama", {}, "found 'llama'; did you mean 'llama.cpp'?"),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_do_is_refused_in_a_sentence(
    models: dict[str, Path], engine: str, changed: dict[str, str], said: str
) -> None:
    options = dict(changed)
    model = models[options.pop("model", engine if engine in models else "mlx")]
    text: dict[str, Any] = {"prompt_tokens": 4} if "placement" in options else {"prompt": "x", "raw": True}
    asked = RequestOptions(str(model), engine=engine, **options, **text)
    with pytest.raises(UsageError) as error:
        setup_of(asked, star_for(engine))
    assert said in str(error.value)


def test_prefill_nodes_are_refused(models: dict[str, Path], llama: LlamaStandIn, tmp_path: Path) -> None:
    file = tmp_path / "placement.yaml"
    file.write_text("{kind: replicas, nodes: [n0, n1], prefill: [n0]}")
    asked = RequestOptions(str(models["llama.cpp"]), prompt_tokens=4, placement=str(file), engine="llama.cpp")
    with pytest.raises(UsageError, match=r"prefill with the engine llama.cpp, expected none, or transformers"):
        setup_of(asked, clusters.star(2))


@pytest.mark.parametrize(("engine", "package"), [("llama.cpp", "llama-cpp-python"), ("mlx", "mlx-lm")])
def test_a_missing_package_is_named_with_how_to_install_it(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, engine: str, package: str
) -> None:
    monkeypatch.setattr("simcluster.lm.other_engines.choice.find_spec", lambda name: None)
    file = open_model(str(models[engine]))
    check_engine(engine, None, file, is_here=False)
    with pytest.raises(UsageError, match=f"{engine} without the package {package}, .*: pip install {package}"):
        check_engine(engine, None, file, is_here=True)


def test_times_of_an_engine_are_those_of_its_terms(models: dict[str, Path]) -> None:
    # The weights of the 8b in q4, and 2 bytes for each number of the cache, at 1.02 of the bandwidth.
    asked = RequestOptions("8b", prompt_tokens=100, max_tokens=2, weights="q4", engine="llama.cpp", placement="alone")
    cluster = clusters.star(1, n0=replace(clusters.IDEAL, flops_per_s=1e15, memory_bandwidth_Bps=10e9))
    setup, file = setup_of(asked, cluster)
    shape = setup.shape
    assert (file, shape.number_bytes, shape.weight_bytes) == (None, 2.0, 18 / 32)
    read = shape.layers * shape.layer_bytes + shape.cache_bytes(shape.layers, 101) + shape.ends_bytes(False, True)
    expected_s = read / (10e9 * ENGINES["llama.cpp"].memory["cpu"])
    assert answer_all(setup, cluster).answers["0"].tpot_s == pytest.approx(expected_s, rel=1e-9)


def test_the_cache_of_an_engine_that_allocates_it_at_once_is_bounded(models: dict[str, Path]) -> None:
    of: Callable[[int], Setup] = lambda tokens: setup_of(  # noqa: E731
        RequestOptions("8b", prompt_tokens=tokens, max_tokens=2, weights="q4", engine="llama.cpp"), clusters.star(1)
    )[0]
    each = of(100).shape.cache_bytes(32, 1)
    assert of(100).limits.blocks * 16 * each <= 10**9  # 131,072 B a token: 7,629 tokens
    assert of(100).limits.running == RUNNING
    assert of(8000).limits.blocks * 16 >= 8002


@pytest.mark.slow
def test_llama_cpp_itself_answers_with_the_tokens_of_ours() -> None:
    pytest.importorskip("llama_cpp", reason="an extra that takes half an hour to build")
    text = {"prompt": "The capital of France is", "max_tokens": 24, "raw": True, "placement": "alone"}
    found = []
    for engine in ("llama.cpp", DEFAULT):
        setup, _ = setup_of(RequestOptions("smollm2", engine=engine, **text), clusters.star(1))  # type: ignore[arg-type]
        found.append(tokens(answer_all(setup, clusters.star(1)))[0])
    assert found[0][:8] == found[1][:8]  # later ones may part at a near tie: activations have 8 bits
