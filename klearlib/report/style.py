"""One visual language for every figure: a series has the same colour, marker and name everywhere.

The paper's curves are dashed, ours are solid with a band over seeds. Colours are the eight of Okabe
and Ito, which stay apart for colour-blind readers; a marker repeats each colour's meaning, so that
a figure can be read in grey.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.paper import PRINTED
from klearlib.run.files import write_bytes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.figure import Figure

PAPER_DASH = (0, (4, 1.6))
"""matplotlib's dash pattern of every curve that the paper printed."""

PNG_DPI = 84
"""Dots per inch of a published png: some 950 pixels across a wide figure. The svg is sharp at any
size."""

NOTEBOOK_DPI = 70
"""Dots per inch in an executed notebook, which shows a figure in a column of about 900 pixels."""

_BLUE, _VERMILION, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#4D4D4D"
_SKY, _PURPLE, _ORANGE = "#56B4E9", "#CC79A7", "#E69F00"


@dataclass(frozen=True)
class SeriesStyle:
    """How one series is drawn and what readers call it."""

    key: str
    label: str
    color: str
    marker: str


_LOOKS = (
    ("clip_higher", "GRPO w/ Clip-Higher", _BLUE, "o"),
    ("gppo", "GPPO", _VERMILION, "s"),
    ("cispo", "CISPO", _GREEN, "^"),
    ("unclipped", "unclipped", _GREY, "D"),
    ("ppo_clip", "PPO clip", _SKY, "v"),
    ("gppo_released", "GPPO, released code", _PURPLE, "P"),
    ("gppo_general", "GPPO, general betas", _ORANGE, "X"),
    ("soft", "soft reward", _VERMILION, "s"),
    ("hard", "hard reward", _BLUE, "o"),
    ("filter", "with filter", _VERMILION, "s"),
    ("no_filter", "without filter", _BLUE, "o"),
    ("advantage", "advantage filter", _VERMILION, "s"),
    ("accuracy", "accuracy filter", _GREEN, "^"),
    ("off", "no filter", _BLUE, "o"),
    ("base model", "base model", _GREY, "D"),
    ("SFT", "SFT", _BLUE, "o"),
    ("maths RL", "maths RL", _SKY, "v"),
    ("code RL", "code RL", _ORANGE, "X"),
    ("alpha_0", "alpha = 0", _GREY, "D"),
    ("alpha_0.05", "alpha = 0.05", _SKY, "v"),
    ("alpha_0.1", "alpha = 0.1", _VERMILION, "s"),
    ("alpha_0.2", "alpha = 0.2", _PURPLE, "P"),
    ("only_true", "only true", _BLUE, "o"),
    ("mixed", "mixed", _VERMILION, "s"),
    ("habit", "wrong by habit", _VERMILION, "s"),
    ("random", "wrong at random", _BLUE, "o"),
    ("student", "student", _BLUE, "o"),
    ("teacher", "teacher itself", _GREY, "D"),
)
SERIES = {key: SeriesStyle(key, *look) for key, *look in _LOOKS}
"""Every series with a fixed look, by key."""

# As figures and tables of the paper print it, and as runs are labelled.
_NAMES = PRINTED | dict.fromkeys(("GRPO w/ Clip-Higher", "Clip-Higher"), "clip_higher")

# Of series that a user adds to ours: neither a colour nor a marker of any above.
_OWN = (
    ("#882255", "*"),
    ("#332288", "p"),
    ("#999933", "h"),
    ("#8C510A", "d"),
    ("#000000", "<"),
    ("#7FBF3F", ">"),
)
_OWN_MARK = "#own"
_SETTINGS = Path(__file__).with_name("figures.mplstyle")
_SPARE = ((_ORANGE, "X"), (_PURPLE, "P"), (_SKY, "v"), (_GREY, "D"))


def series_style(name: str) -> SeriesStyle:
    """The look of a series, by key or by the name that the paper's figures print.

    A series without a fixed look keeps its name and gets one of four spare colours, chosen by the
    name alone, so that it too is the same in every figure.

    >>> series_style("GRPO w/ Clip Higher").key
    'clip_higher'
    """
    key = _NAMES.get(name, name)
    if key in SERIES:
        return SERIES[key]
    label, mark, number = key.rpartition(_OWN_MARK)
    if mark:
        return SeriesStyle(key, label, *_OWN[int(number) % len(_OWN)])
    color, marker = _SPARE[zlib.crc32(key.encode()) % len(_SPARE)]
    return SeriesStyle(key, key.replace("_", " "), color, marker)


def own_series(label: str, number: int) -> str:
    """The name of a user's series with the title `label` and the look of this number, so that a few
    of them can be told apart.

    >>> series_style(own_series("half", 0)).label
    'half'
    """
    return f"{label}{_OWN_MARK}{number}"


def series_order(names) -> list[str]:
    """The distinct names in drawing order: the order of `SERIES`, then the others by first
    appearance.

    >>> series_order(["cispo", "mine", "clip_higher", "cispo"])
    ['clip_higher', 'cispo', 'mine']
    """
    place = {key: index for index, key in enumerate(SERIES)}
    distinct = dict.fromkeys(names)
    return sorted(distinct, key=lambda name: place.get(series_style(name).key, len(place)))


def figure_style() -> AbstractContextManager:
    """matplotlib's settings of the suite, for a ``with`` block; the user's own are restored after
    it."""
    import matplotlib

    return matplotlib.rc_context(fname=_SETTINGS)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, `width` x `height` inches, that knows nothing of pyplot or of a display.

    In a notebook it shows itself once, as the value of a cell; no window or figure list keeps it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            return figure_bytes(self, "png", dpi=NOTEBOOK_DPI)

    with figure_style():
        figure = NotebookFigure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(h_pad=0.09, w_pad=0.06)
    return figure


def figure_bytes(figure: Figure, kind: str, *, dpi: int = PNG_DPI) -> bytes:
    """The figure as a small file of `kind` (svg, png); equal figures give equal bytes.

    The dates and program versions that matplotlib writes into files are left out.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    no_metadata = {
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "png": {"Software": None},
    }
    buffer = io.BytesIO()
    with figure_style():
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Once for all files: it costs as much as drawing, and a second one would differ.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=no_metadata[kind])
    if kind == "png":  # a palette takes a third of the bytes and looks the same
        from PIL import Image

        picture = Image.open(buffer).convert("RGB")
        small, buffer = picture.quantize(256, kmeans=1, dither=Image.Dither.NONE), io.BytesIO()
        small.save(buffer, format="png", optimize=True, dpi=(dpi, dpi))
    return buffer.getvalue()


def save_figure(figure: Figure, folder: Path, name: str) -> dict[str, Path]:
    """Write <name>.svg and .png into `folder`; equal figures give equal bytes. Returns the paths by
    kind; a file is whole or absent."""
    files = {kind: folder / f"{name}.{kind}" for kind in ("svg", "png")}
    return {
        kind: write_bytes(path, figure_bytes(figure, kind), durable=False, make_folder=True)
        for kind, path in files.items()
    }
