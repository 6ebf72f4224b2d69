"""Models that other programs have stored are found by name; what is malformed or leads out of a cache is named."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from simcluster.errors import UsageError
from simcluster.lm.headers import local_models as module
from simcluster.lm.headers.local_models import LocalModel, local_models
from simcluster.lm.headers.read import header_of
from simcluster.lm.models.open import open_model
from tests.lm.headers.public import llama

WIDTH, WORDS, FFN = 16, 40, 24
CONFIG = llama("llama", 1, WIDTH, 2, 2, FFN, WORDS, max_position_embeddings=64, hidden_act="silu") | {
    "torch_dtype": "float32",
    "tie_word_embeddings": True,
}
REVISION, OTHER = "a" * 40, "b" * 40
MODEL = "application/vnd.ollama.image.model"
ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj"}
FEED = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no variable that leads elsewhere."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def tiny_gguf(path: Path, kind: str = "llama", value: float = 0.5) -> Path:
    """Write a decoder of one layer, all weights *value*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, kind)
    for name, number in (("block_count", 1), ("context_length", 64), ("embedding_length", WIDTH),
                         ("feed_forward_length", FFN), ("attention.head_count", 2)):  # fmt: skip
        writer.add_uint32(f"{kind}.{name}", number)
    writer.add_float32(f"{kind}.attention.layer_norm_rms_epsilon", 1e-5)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (WORDS, WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.{name}": (WIDTH, WIDTH) for name in ATTENTION}
    shapes |= {"blk.0.ffn_gate": (FFN, WIDTH), "blk.0.ffn_up": (FFN, WIDTH), "blk.0.ffn_down": (WIDTH, FFN)}
    shapes |= {"blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.full(shape, value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_folder(folder: Path, **changed: Any) -> Path:
    """Write the same model as a folder of Hugging Face's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changed))
    layer = "model.layers.0."
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (WORDS, WIDTH), "model.norm": (WIDTH,)}
    shapes |= {f"{layer}self_attn.{name}": (WIDTH, WIDTH) for name in ATTENTION.values()}
    shapes |= {f"{layer}mlp.{name}": (WIDTH, FFN) if "down" in name else (FFN, WIDTH) for name in FEED.values()}
    shapes |= {f"{layer}{name}": (WIDTH,) for name in ("input_layernorm", "post_attention_layernorm")}
    save_file({f"{name}.weight": np.full(shape, 0.5, np.float32) for name, shape in shapes.items()},
              folder / "model.safetensors")  # fmt: skip
    return folder


def in_hub(cache: Path, name: str, revision: str = REVISION, main: str = REVISION) -> Path:
    """Make an empty snapshot of the model *name* as the hub's client does; return its folder."""
    repository = cache / f"models--{name.replace('/', '--')}"
    folder = repository / "snapshots" / revision
    for path in (folder, repository / "blobs", repository / "refs"):
        path.mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(main)
    return folder


def as_links(folder: Path) -> Path:
    """Move the files of the snapshot *folder* to its blobs, and leave links there."""
    for file in sorted(folder.iterdir()):
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(folder.parent.parent / "blobs" / blob)
        file.symlink_to(f"../../blobs/{blob}")
    return folder


def in_ollama(root: Path, *path: str, layers: Any = None) -> Path:
    """Write the manifest *path* and its GGUF file; return the file."""
    blob = tiny_gguf(root / "blobs" / "new")
    digest = hashlib.sha256(blob.read_bytes()).hexdigest()
    place = root.joinpath("manifests", *path)
    place.parent.mkdir(parents=True, exist_ok=True)
    own = [{"mediaType": "text/plain", "digest": "x"}, {"mediaType": MODEL, "digest": f"sha256:{digest}"}]
    place.write_text(json.dumps({"layers": own if layers is None else layers}))
    return blob.rename(blob.with_name(f"sha256-{digest}"))


def refused(name: str) -> str:
    with pytest.raises(UsageError) as error:
        header_of(name)
    return str(error.value)


def found() -> list[str]:
    return [one.full_name for one in local_models()]


def test_a_snapshot_of_the_hub_is_found_and_read_through_its_links(home: Path) -> None:
    folder = in_hub(home / ".cache" / "huggingface" / "hub", "maker/tiny")
    as_links(tiny_folder(folder))
    (one,) = local_models()
    size_bytes = sum(file.stat().st_size for file in folder.iterdir())
    assert one == LocalModel("hub", "maker/tiny", "", folder, size_bytes)
    model = open_model("maker/tiny")
    assert (model.name, model.path) == ("tiny", folder)
    assert float(model.read("model.layers.0.mlp.down_proj.weight", 0, 1)[0, 0]) == 0.5
    # 2 norms of the layer and the last norm; 40 x 16 embeddings; 4 matrices of 16 x 16, 3 of 24 x 16.
    assert header_of("maker/tiny").shape.weights == 3 * 16 + 40 * 16 + 4 * 256 + 3 * 384
    assert header_of("maker/tiny").shape.name == "tiny"


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HUB_CACHE": "x/a", "HF_HOME": "x/b"}, "x/a"),
        ({"HF_HOME": "x/b", "XDG_CACHE_HOME": "x/c"}, "x/b/hub"),
        ({"XDG_CACHE_HOME": "x/c"}, "x/c/huggingface/hub"),
    ],
)
def test_the_variables_of_the_hub_say_where_its_cache_is(
    home: Path, variables: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(home / value))
    as_links(tiny_folder(in_hub(home / place, "maker/tiny")))
    assert found() == ["maker/tiny"]


def test_the_main_revision_decides(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(home))
    tiny_folder(in_hub(home, "maker/tiny"))
    new = tiny_folder(in_hub(home, "maker/tiny", OTHER, main=OTHER))
    assert [one.path for one in local_models()] == [new]


@pytest.mark.parametrize("main", ["../../../../etc", "", "x" * 1000, "A" * 40])
def test_a_revision_that_is_none_is_named(home: Path, main: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(home))
    tiny_folder(in_hub(home, "maker/tiny", main=main))
    assert "--model: found maker/tiny of hub: refs/main: " in refused("maker/tiny")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../secret", "../../blobs/../../secret", "../../blobs/inner"])
def test_a_link_out_of_the_cache_is_not_followed(home: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(home))
    folder = as_links(tiny_folder(in_hub(home, "maker/tiny")))
    tiny_folder(home / "safe").joinpath("model.safetensors").rename(home / "secret")
    (home / "models--maker--tiny" / "blobs" / "inner").symlink_to(home / "secret")  # a link at the end of a link
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(target)
    (one,) = local_models()
    assert one.problem == "model.safetensors: a symbolic link, which is not followed"
    for name in ("maker/tiny", str(folder)):
        assert "a symbolic link, which is not followed" in refused(name)


def test_a_link_to_blobs_is_followed_only_from_a_snapshot(tmp_path: Path) -> None:
    folder = as_links(tiny_folder(in_hub(tmp_path, "maker/tiny")))
    assert header_of(str(folder)).tensors
    folder.parent.rename(tmp_path / "models--maker--tiny" / "copies")
    assert "not followed" in refused(str(tmp_path / "models--maker--tiny" / "copies" / REVISION))


def test_of_several_gguf_files_one_is_named(home: Path) -> None:
    folder = home / ".lmstudio" / "models" / "maker" / "tiny-GGUF"
    tiny_gguf(folder / "tiny-Q4.gguf")
    tiny_gguf(folder / "mmproj-tiny.gguf")  # a projector of images is no choice
    assert header_of("maker/tiny-GGUF").facts.file == folder / "tiny-Q4.gguf"
    tiny_gguf(folder / "tiny-Q8.gguf", value=0.25)
    said = "found maker/tiny-GGUF, with 2 files, expected one of maker/tiny-GGUF:tiny-Q4.gguf, maker/tiny-GGUF:tiny-Q8"
    assert said in refused("maker/tiny-GGUF")
    assert float(open_model("maker/tiny-GGUF:tiny-Q8.gguf").read("blk.0.ffn_down.weight", 0, 1)[0, 0]) == 0.25


def test_the_parts_of_a_split_model_are_one_model(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(home))
    folder = in_hub(home, "maker/large")
    for number in (1, 2, 3):
        (folder / f"large-0000{number}-of-00003.gguf").write_bytes(bytes(100 * number))
    (one,) = local_models()
    assert (one.full_name, one.size_bytes) == ("maker/large:large-00001-of-00003.gguf", 100 + 200 + 300)


def test_a_model_of_ollama_is_found_by_name_and_tag(home: Path) -> None:
    root = home / ".ollama" / "models"
    blob = in_ollama(root, "registry.ollama.ai", "library", "tiny", "1b")
    assert found() == ["tiny:1b"]
    assert header_of("tiny").facts.file == header_of("tiny:1b").facts.file == blob
    assert open_model("tiny:1b").name == "tiny:1b"
    in_ollama(root, "registry.ollama.ai", "library", "tiny", "2b")
    assert "one of tiny:1b, tiny:2b" in refused("tiny")
    in_ollama(root, "registry.ollama.ai", "library", "tiny", "latest")
    assert header_of("tiny").facts.file == blob
    in_ollama(root, "registry.ollama.ai", "me", "tiny", "latest")
    in_ollama(root, "hf.co", "maker", "tiny", "Q4_K_M")
    assert found() == ["hf.co/maker/tiny:Q4_K_M", "me/tiny:latest", "tiny:1b", "tiny:2b", "tiny:latest"]


LAYERS: dict[str, tuple[Any, str]] = {
    "no weights": ([], "0 files of weights in the manifest"),
    "two weights": ([{"mediaType": MODEL, "digest": "sha256:" + "0" * 64}] * 2, "2 files of weights in the manifest"),
    "a path": ([{"mediaType": MODEL, "digest": "sha256:../../secret"}], "the digest 'sha256:../../secret'"),
    "a lost file": ([{"mediaType": MODEL, "digest": "sha256:" + "0" * 64}], "No such file"),
    "no digest": ([{"mediaType": MODEL}], "no digest"),
    "a number": (7, "not iterable"),
    "a large manifest": (["x" * 2**16], "more than 65536"),
}


@pytest.mark.parametrize("case", LAYERS)
def test_a_malformed_manifest_is_named(case: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(home))
    layers, said = LAYERS[case]
    in_ollama(home, "registry.ollama.ai", "library", "tiny", "latest", layers=layers)
    assert said in refused("tiny:latest")


def test_a_manifest_that_is_no_json_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(home))
    in_ollama(home, "registry.ollama.ai", "library", "tiny", "latest")
    place = home / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    for text in ("", "[" * 60_000, '{"layers": ', "[1]", "null"):
        place.write_text(text)
        assert "tiny:latest of Ollama: " in refused("tiny")


def test_a_path_comes_before_a_name(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf(home / ".lmstudio" / "models" / "maker" / "tiny" / "a.gguf")
    monkeypatch.chdir(tmp_path)
    tiny_folder(tmp_path / "maker" / "tiny")
    assert header_of("maker/tiny").facts.file == Path("maker/tiny/config.json")


def test_an_unknown_name_is_refused_with_the_nearest_name_and_the_places(home: Path) -> None:
    tiny_gguf(home / ".lmstudio" / "models" / "maker" / "tiny-GGUF" / "a.gguf")
    said = refused("maker/tinyGGUF")
    assert "found 'maker/tinyGGUF': no such file and no such name" in said
    assert "~/.cache/huggingface/hub, ~/.lmstudio/models, ~/.cache/lm-studio/models, ~/.ollama/models" in said
    assert said.endswith("did you mean 'maker/tiny-GGUF'?")


def test_a_place_lists_a_bounded_number_of_entries(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 10)
    for number in range(8):
        tiny_gguf(home / ".lmstudio" / "models" / "maker" / f"tiny{number}" / "a.gguf")
    # 1 name of a maker, 8 of folders, and what is left of the 10: the file of the first folder.
    assert found() == ["maker/tiny0:a.gguf"]


def test_places_with_anything_in_them_never_crash(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "hub"))
    (home / "hub" / "models--a--b").mkdir(parents=True)
    (home / "hub" / "models--file").write_text("")
    (home / "hub" / "models--loop").symlink_to(home / "hub")
    os.mkfifo(home / "hub" / "version.txt")
    studio = home / ".lmstudio" / "models"
    (studio / "maker" / "empty").mkdir(parents=True)
    (studio / ".DS_Store").write_text("")
    os.mkfifo(studio / "maker" / "empty" / "a.gguf")
    (home / ".ollama").symlink_to(home / ".ollama")
    assert {one.full_name: one.problem for one in local_models()} == {
        "a/b": "refs/main: No such file or directory",
        "file": "refs/main: Not a directory",
        "loop": "refs/main: a symbolic link, which is not followed",
        "maker/empty:a.gguf": "a.gguf: no regular file",
    }


def test_the_table_says_which_models_serve_can_run(home: Path, command: Any) -> None:
    studio = home / ".lmstudio" / "models" / "maker"
    tiny_gguf(studio / "tiny" / "a.gguf")
    tiny_gguf(studio / "bird" / "a.gguf", kind="bird")
    (tiny_folder(studio / "sizes") / "model.safetensors").unlink()
    as_links(tiny_folder(in_hub(home / ".cache" / "huggingface" / "hub", "maker/whole")))
    code, out, _ = command("list", "models", "--json")
    rows = {one.pop("name"): one for one in json.loads(out)["local_models"]}
    assert code == 0
    assert {name: (row["source"], row["kind"], row["serve"], row["why"]) for name, row in rows.items()} == {
        "maker/whole": ("hub", "safetensors F32", True, None),
        "maker/bird:a.gguf": ("LM Studio", "?", False, "general.architecture: 'bird'"),
        "maker/sizes": ("LM Studio", "safetensors", False, "no .safetensors weights"),
        "maker/tiny:a.gguf": ("LM Studio", "GGUF F32", True, None),
    }
    assert rows["maker/tiny:a.gguf"]["size_bytes"] == (studio / "tiny" / "a.gguf").stat().st_size
    lines = command("list", "models")[1].splitlines()
    assert lines[1].startswith("  smollm2                SmolLM2 135M, 0.135 billion weights: ")
    assert lines[-5].split() == ["name", "source", "kind", "size", "serve"]
    assert lines[-3].endswith("no: general.architecture: 'bird'")
    assert lines[-1].endswith("yes")
    assert "local_models" not in json.loads(command("list", "--json")[1])


def test_commands_take_the_name_of_a_local_model(home: Path, command: Any) -> None:
    as_links(tiny_folder(in_hub(home / ".cache" / "huggingface" / "hub", "maker/tiny")))
    code, out, err = command("plan", "smolcluster", "--model", "maker/tiny", "--json")
    assert (code, err, json.loads(out)["model"]["name"]) == (0, "", "tiny")
    timed = ("--prompt-tokens", "8", "--max-tokens", "2")
    assert command("generate", "smolcluster", "--model", "maker/tiny", *timed)[0] == 0
    code, out, err = command("generate", "smolcluster", "--model", "maker/tinny", *timed)
    assert (code, out) == (2, "")
    assert "did you mean 'maker/tiny'?" in err
