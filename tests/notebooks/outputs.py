"""Outputs as they are stored: without progress, figures as images, nothing that changes from one execution to the next.

An image depends on the browser and its fonts, so it carries the digest of what it shows: the figure's own
numbers, to six digits. A second execution is compared by that digest; with other kernels, by its outline.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from simcluster.lab.reports.export import PX_PER_IN, WIDTH_IN, drawn
from tests.notebooks.close import outline
from tests.notebooks.source import MEASURED

PLOTLY, PNG = "application/vnd.plotly.v1+json", "image/png"
COLOURS = 128
"""Of an image: a third of the bytes, and no difference that is seen."""

PROGRESS = re.compile(r".* [█░]+ [\d,]+ of [\d,]+ \w+, \d+ s")


def figures_of(cell: Any) -> list[Any]:
    """Return the outputs of *cell* that are figures still as data."""
    return [output for output in cell.get("outputs", []) if PLOTLY in output.get("data", {})]


def tidy(notebook: Any) -> None:
    """Remove progress, and warnings of a busy machine, from the outputs of *notebook*, join pieces of one stream, and
    count cells from 1.
    """
    number = 0
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        number += 1
        cell["execution_count"] = number
        kept: list[Any] = []
        for output in cell.outputs:
            if PROGRESS.fullmatch(output.get("data", {}).get("text/plain", "")) or _is_of_a_busy_machine(output):
                continue
            if output.output_type == "execute_result":
                output["execution_count"] = number
            if output.output_type == "stream" and kept and kept[-1].get("name") == output.name:
                kept[-1]["text"] += output.text
            else:
                kept.append(output)
        cell["outputs"] = kept


def _is_of_a_busy_machine(output: Any) -> bool:
    """Return whether *output* only warns that a calibration was disturbed, which another machine would not do."""
    lines = str(output.get("text", "")).splitlines()
    return output.get("name") == "stderr" and all(line.startswith("warning: the model explains ") for line in lines)


def draw(notebook: Any) -> None:
    """Replace every figure in *notebook* by an image of it, a line of text and its digest."""
    found = [output for cell in notebook.cells for output in figures_of(cell)]
    figures = [go.Figure({key: output.data[PLOTLY][key] for key in ("data", "layout")}) for output in found]
    for output, figure, content in zip(found, figures, drawn(figures, ".png"), strict=True):
        image, height_px = _smaller(content)
        size = {"width": round(WIDTH_IN * PX_PER_IN), "height": height_px}
        known = {"figure": digest(output.data[PLOTLY]), "outline": json.dumps(outline(output.data[PLOTLY]))}
        metadata = {PNG: size, "simcluster": known}
        text = base64.b64encode(image).decode()
        output.update(data={PNG: text, "text/plain": in_words(figure)}, metadata=metadata)


def digest(figure: Any) -> str:
    """Return the digest of a *figure*'s traces and axes, with numbers to six digits."""
    layout = {key: value for key, value in figure["layout"].items() if key != "template"}
    return hashlib.sha256(json.dumps(_plain([figure["data"], layout]), sort_keys=True).encode()).hexdigest()[:16]


def in_words(figure: go.Figure) -> str:
    """Return a line about *figure*: titles of its axes, names of its lines."""
    axes = [figure.layout[name].title.text for name in figure.layout if re.fullmatch(r"[xy]axis\d*", name)]
    titles = [re.sub(r"<br>.*", "", title) for title in axes if title]
    names = list(dict.fromkeys(trace.name for trace in figure.data if trace.name and trace.showlegend is not False))
    return "Figure: " + "; ".join(filter(None, [", ".join(dict.fromkeys(titles)), ", ".join(names)]))


def is_measured(cell: Any) -> bool:
    """Return whether the outputs of *cell* depend on the machine."""
    return MEASURED in cell.metadata.get("tags", [])


def shown(cell: Any) -> list[Any]:
    """Return what *cell* shows, as far as a second execution must show it again."""
    kinds = [_kinds(output) for output in cell.outputs]
    if is_measured(cell):
        return [kind for kind in kinds if kind != ["stream"]]
    return [_content(output) for output in cell.outputs]


def problems_of(notebook: Any) -> Sequence[str]:
    """Return what no stored notebook may have: absolute paths, warnings, images of another size than they state."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            text = json.dumps({kind: value for kind, value in output.get("data", {}).items() if kind != PNG})
            text += str(output.get("text", ""))
            if match := re.search(r"(?<![\w.:/<])/(tmp|home|root|work|usr|Users|private)/[^\s\"']*", text):
                found.append(f"{cell.id}: the path {match[0]}")
            if output.get("name") == "stderr":
                found.append(f"{cell.id}: a warning, {output.text:.200}")
            if PNG in output.get("data", {}) and _height_px(output.data[PNG]) != output.metadata[PNG]["height"]:
                found.append(f"{cell.id}: an image of another height than it states")
    return found


def _content(output: Any) -> Any:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return [output.ename, output.evalue]
    if PLOTLY in output.data:
        return digest(output.data[PLOTLY])
    if PNG in output.data:
        return output.metadata["simcluster"]["figure"]
    return dict(output.data)


def _kinds(output: Any) -> list[str]:
    if "data" not in output:
        return [output.output_type]
    return ["figure"] if {PLOTLY, PNG} & set(output.data) else sorted(output.data)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() >= {"bdata", "dtype"}:
            return _plain(np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"]).tolist())
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return f"{value:.6g}" if isinstance(value, float) else value


def _smaller(content: bytes) -> tuple[bytes, int]:
    """Return (the PNG *content* with fewer colours, its height on the page in pixels)."""
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    smaller = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(smaller, "PNG", optimize=True)
    return smaller.getvalue(), _on_page_px(image.size)


def _height_px(text: str) -> int:
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(text)))
    image.load()
    return _on_page_px(image.size)


def _on_page_px(size: tuple[int, int]) -> int:
    width, height = size
    return round(height * WIDTH_IN * PX_PER_IN / width)
