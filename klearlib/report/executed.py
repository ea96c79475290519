"""An executed notebook as one HTML file that needs no network: formulas are MathML, nothing is a
script."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.report.mathml import TAGS, to_mathml
from klearlib.report.render import render, style_sheet
from klearlib.run.files import write_text

_IMAGES = ("image/png", "image/jpeg")
_KINDS = ("text/html", "text/markdown", "image/svg+xml", "text/latex", *_IMAGES, "text/plain")
_TAGS = """
    a abbr b blockquote br caption code col colgroup dd del details div dl dt em h1 h2 h3 h4 h5 h6
    hr i img ins kbd li ol p pre q s samp small span strong sub summary sup table tbody td tfoot th
    thead tr u ul var wbr
"""
_ATTRIBUTES = """
    align alt class colspan dir height id lang rowspan scope start title width
    accent accentunder alttext columnspan depth display displaystyle fence form largeop
    linethickness lspace mathvariant maxsize minsize movablelimits rspace scriptlevel separator
    stretchy style symmetric voffset
"""
_STYLES = """
    background-color border border-bottom border-collapse border-left border-right border-top color
    font-family font-size font-style font-weight height margin max-width min-width overflow
    overflow-wrap padding text-align text-decoration vertical-align white-space width
"""
_ADDRESSES = {
    ("a", "href"): re.compile(r"https?://|mailto:|#|[\w./-]+(#[\w-]*)?\Z", re.ASCII),
    ("img", "src"): re.compile(r"data:image/(png|jpeg|gif|svg\+xml);base64,[A-Za-z0-9+/=\s]*\Z"),
}


def render_notebook(ipynb: Path, html: Path) -> Path:
    """Write an executed notebook with its outputs as the page `html`; equal notebooks give equal
    bytes.

    nbconvert renders the cells; its page frames load scripts from the network, so the frame is
    ours. Formulas in markdown become MathML; outputs that are scripts or widgets are shown as their
    text, and of markup only what needs neither a script nor the network is kept.

    Raises KlearError where the notebook cannot be read or rendered, or a formula cannot be drawn.
    """
    import nbformat
    from pygments.formatters import HtmlFormatter

    try:
        notebook = nbformat.read(ipynb, as_version=4)
        body, _ = _exporter().from_notebook_node(_passive(notebook))
        body.encode()  # half of a surrogate pair is no text
    except KlearError:
        raise
    except Exception as error:  # of nbformat, nbconvert and what they call, for a cell at fault
        raise KlearError(
            f"{ipynb} cannot be read as a notebook ({type(error).__name__}): run it again"
        ) from error
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    css = style_sheet("page.css", "executed.css")
    css += f"\n{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}"
    text = render("executed.html.j2", title=ipynb.stem, css=css, cells=_safe(body))
    return write_text(html, text, durable=False, make_folder=True)


def _safe(body: str) -> str:
    """What a page may hold of `body`: no script, no form, nothing that is loaded, by lists of what
    is allowed; a tag beyond them is shown as text."""
    from bleach import clean
    from bleach.css_sanitizer import CSSSanitizer

    def is_allowed(tag: str, name: str, value: str) -> bool:
        address = _ADDRESSES.get((tag, name))
        return name in _ATTRIBUTES.split() or bool(address and address.match(value))

    return clean(
        body,
        tags={*_TAGS.split(), *TAGS.split()},
        attributes=is_allowed,
        protocols={"http", "https", "mailto", "data"},  # and of these, what `_ADDRESSES` allows
        css_sanitizer=CSSSanitizer(allowed_css_properties=_STYLES.split()),
    )


def _passive(notebook):
    """A copy whose outputs keep only what a page can show by itself, formulas as MathML."""
    import copy

    notebook = copy.deepcopy(notebook)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            shown = output.get("data")
            if shown is None:
                continue
            output["data"] = type(shown)({kind: shown[kind] for kind in _KINDS if kind in shown})
            if "image/svg+xml" in shown:  # as an image it runs nothing and loads nothing
                drawing = base64.b64encode(shown["image/svg+xml"].encode()).decode()
                image = f'<img src="data:image/svg+xml;base64,{drawing}">'
                output["data"].setdefault("text/html", image)
            if "text/latex" in shown and "text/html" not in shown:
                latex = shown["text/latex"].strip().strip("$").strip()
                output["data"]["text/html"] = to_mathml(latex)
    return notebook


def _exporter():
    from jinja2 import pass_context
    from nbconvert import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class MathMLRenderer(IPythonRenderer):
        """Markdown whose formulas are drawn now and not by a script of the page."""

        def block_math(self, body: str) -> str:
            return to_mathml(body)

        def inline_math(self, body: str) -> str:
            return to_mathml(body, display=False)

        def latex_environment(self, name: str, body: str) -> str:
            return to_mathml(rf"\begin{{{name}}}{body}\end{{{name}}}")

    class OfflineExporter(HTMLExporter):
        """The cells of a notebook without a page around them."""

        @pass_context
        def markdown2html(self, context, source: str) -> str:
            cell = context.get("cell", {})
            plain = {"escape": False, "embed_images": False, "path": "", "anchor_link_text": ""}
            renderer = MathMLRenderer(
                **plain, attachments=cell.get("attachments", {}), exclude_anchor_links=True
            )
            return MarkdownWithMath(renderer=renderer).render(source)

    exporter = OfflineExporter(template_name="basic")
    exporter.config.NbConvertBase.display_data_priority = list(_KINDS)
    return exporter
