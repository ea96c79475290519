"""Figure files that weigh little and look the same: png with a palette, svg in hundredths of a
point."""

from __future__ import annotations

import io
import math
import re
from collections import Counter

COLORS = 96
"""Colours of a png: a handful of inks, and what lies between them and the paper."""

_WHITE_FROM = 246
_PATH = re.compile(r'(?<= d=")[^"]*')
# Not the factors of scale(): a hundredth of those would be visible.
_PLACE = re.compile(r'(?<= )(?:d|points|x|y|width|height)="[^"]*"|translate\([^)]*\)')
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_UNSEEN = re.compile(r"<!--.*?-->|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)
_MOVED = re.compile(r'(<use [^>]*)transform="translate\(([^ )]+) 0\)"/>')


def palette_png(png: bytes, *, dpi: int) -> bytes:
    """The same picture with at most `COLORS` colours; equal pictures give equal bytes.

    No dithering: noise in flat areas would weigh more than it would show. White stays white.

    Args:
        png: an opaque picture. dpi: dots per inch that the file declares.
    """
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # A colour weighs as the root of its pixels: by pixels alone, thin lines would lose their hue.
    counted = picture.getcolors(picture.width * picture.height)
    inks = [ink for count, ink in sorted(counted) for _ in range(math.isqrt(count))]
    sample = Image.new("RGB", (len(inks), 1))
    sample.putdata(inks)
    chosen = sample.quantize(COLORS, method=Image.Quantize.MEDIANCUT, kmeans=1)
    small = picture.quantize(palette=chosen, dither=Image.Dither.NONE)
    # A colour of the palette is the mean of what it stands for, so that paper would turn grey.
    palette = small.getpalette()
    colors = [palette[start : start + 3] for start in range(0, len(palette), 3)]
    whitened = [[255] * 3 if min(color) >= _WHITE_FROM else color for color in colors]
    small.putpalette([value for color in whitened for value in color])
    buffer = io.BytesIO()
    small.save(buffer, format="png", optimize=True, dpi=(dpi, dpi))
    return buffer.getvalue()


def compact_svg(svg: str) -> str:
    """The same drawing in half the bytes: coordinates in hundredths of a point, far below a pixel;
    no comments and metadata; short names, and a class for each style that comes again.

    >>> compact_svg('<path d="M 1.23456 2 L 3 -0.0004" transform="scale(0.015625)"/>')
    '<path d="M1.23 2L3 0" transform="scale(0.015625)"/>'
    """
    text = _PLACE.sub(lambda place: _NUMBER.sub(_hundredths, place[0]), _UNSEEN.sub("", svg))
    text = re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", text)).strip()
    text = _PATH.sub(lambda path: re.sub(r" ?([A-Za-z]) ?", r"\1", path[0]).strip(), text)
    text = _MOVED.sub(r'\1x="\2"/>', text.replace("xlink:href=", "href="))
    return _share_styles(_shorten_names(text))


def _hundredths(number: re.Match) -> str:
    text = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _shorten_names(text: str) -> str:
    """Names by how often they are referred to; those that nothing refers to go."""
    counts = Counter(re.findall(r'(?<=href="#)[^"]+|(?<=url\(#)[^)]+', text))
    short = {name: f"n{place}" for place, (name, _) in enumerate(counts.most_common())}
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{short[m[1]]}"' if m[1] in short else "", text)
    return re.sub(r'(href="#|url\(#)([^")]+)', lambda m: m[1] + short[m[2]], text)


def _share_styles(text: str) -> str:
    counts = Counter(re.findall(r' style="([^"]*)"', text))
    common = [style for style, count in counts.most_common() if count > 1]
    names = {style: f"s{place}" for place, style in enumerate(common)}

    def shared(match: re.Match) -> str:
        return f' class="{names[match[1]]}"' if match[1] in names else match[0]

    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    return re.sub(r' style="([^"]*)"', shared, text).replace("</style>", rules + "</style>", 1)
