"""Small files show the same picture: places, colours, references, and the paper's white."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import report_fakes as fakes
from PIL import Image

from klearlib.report.compact import COLORS, compact_svg, palette_png
from klearlib.report.curves import Panel, paper_beside_ours
from klearlib.report.style import SERIES, figure_bytes, figure_style

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"


def drawn():
    panels = [
        Panel("AIME 2024, avg@32", "maths A", fakes.paper_curves(), fakes.curves(), "score"),
        Panel("gradient norm", "norm", fakes.paper_curves(), fakes.curves(noise=0.1), "norm"),
    ]
    return paper_beside_ours(panels)


def plain(figure, kind, dpi=96):
    """The file as matplotlib writes it."""
    buffer = io.BytesIO()
    with figure_style():
        figure.savefig(buffer, format=kind, dpi=dpi)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def svgs():
    original = plain(drawn(), "svg").decode()
    return original, compact_svg(original)


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def tree(svg):
    return ElementTree.fromstring(svg.encode())


def test_rounding_moves_no_point_by_more_than_half_a_hundredth(svgs):
    paths = [[n.get("d", "") for n in tree(svg).iter(f"{SVG}path")] for svg in svgs]
    assert len(paths[0]) == len(paths[1]) > 50
    for first, second in zip(*paths, strict=True):
        assert re.findall("[A-Za-z]", first) == re.findall("[A-Za-z]", second)
        pairs = list(zip(NUMBER.findall(first), NUMBER.findall(second), strict=True))
        assert all(abs(float(a) - float(b)) <= 0.005 + 1e-9 for a, b in pairs)
    assert re.findall(r"scale\([^)]*\)", svgs[0]) == re.findall(r"scale\([^)]*\)", svgs[1])


def test_every_mark_is_used_where_it_was_and_as_it_was(svgs):
    def marks(svg):
        root = tree(svg)
        paths = {n.get("id"): n.get("d", "") for n in root.iter(f"{SVG}path") if n.get("id")}
        sheet = "".join(n.text for n in root.iter(f"{SVG}style"))
        styles = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", sheet))
        found = []
        for use in root.iter(f"{SVG}use"):
            target = (use.get("href") or use.get(f"{XLINK}href"))[1:]
            style = use.get("style") or styles.get(use.get("class"), "")
            moved = re.match(r"translate\((\S+)", use.get("transform", ""))
            place = float(moved[1] if moved else use.get("x", "0"))
            found.append((len(NUMBER.findall(paths[target])), style, place, use.get("y")))
        return found

    before, after = map(marks, svgs)
    assert len(before) == len(after) > 100
    for first, second in zip(before, after, strict=True):
        assert first[:2] == second[:2] and first[2] == pytest.approx(second[2], abs=0.0051)
        assert float(first[3] or 0) == pytest.approx(float(second[3] or 0), abs=0.0051)


def test_no_reference_leads_nowhere_and_no_metadata_stays(svgs):
    small = svgs[1]
    names = re.findall(r' id="([^"]+)"', small)
    targets = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', small))
    assert len(names) == len(set(names))
    assert {a or b for a, b in targets} == set(names)
    assert "metadata" not in small and "<!--" not in small
    assert len(small) < 0.55 * len(svgs[0])


def test_white_stays_white_and_inks_keep_their_colour():
    figure = drawn()
    after = pixels(figure_bytes(figure, "png", dpi=96))
    before = pixels(plain(figure, "png"))
    assert before.shape == after.shape
    white = (before == 255).all(axis=-1)
    assert white.mean() > 0.5 and (after[white] == 255).all()
    far = np.abs(before - after).max(axis=-1)
    assert far.max() <= 60 and np.percentile(far, 99) <= 16
    for key in ("clip_higher", "gppo", "cispo"):
        ink = [int(SERIES[key].color[place : place + 2], 16) for place in (1, 3, 5)]
        own = (before == ink).all(axis=-1)
        assert own.sum() > 100 and far[own].max() <= 8, key


def test_a_png_is_a_palette_of_few_colours_and_says_its_dpi():
    large = plain(drawn(), "png")
    small = palette_png(large, dpi=96)
    picture = Image.open(io.BytesIO(small))
    assert picture.mode == "P" and len(picture.getcolors()) <= COLORS
    assert picture.info["dpi"] == pytest.approx((96, 96), abs=0.1)
    assert len(small) < 0.4 * len(large)


def test_a_picture_of_one_colour_stays_so():
    for color in ((255, 255, 255), (213, 94, 0), (247, 250, 251)):
        buffer = io.BytesIO()
        Image.new("RGB", (40, 30), color).save(buffer, format="png")
        expected = (255, 255, 255) if min(color) >= 246 else color
        assert (pixels(palette_png(buffer.getvalue(), dpi=96)) == expected).all()
