"""Small pictures look the same: colours, and the paper's white."""

from __future__ import annotations

import io

import numpy as np
import pytest
import report_fakes as fakes
from PIL import Image

from klearlib.report.curves import Panel, paper_beside_ours
from klearlib.report.style import SERIES, figure_bytes, figure_style


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


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


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


def test_a_png_is_a_small_palette_and_says_its_dpi():
    small = figure_bytes(drawn(), "png", dpi=96)
    picture = Image.open(io.BytesIO(small))
    assert picture.mode == "P" and picture.info["dpi"] == pytest.approx((96, 96), abs=0.1)
    assert len(small) < 0.4 * len(plain(drawn(), "png"))
