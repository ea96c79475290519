"""An executed notebook as one HTML file that needs no network: formulas are MathML, nothing is a
script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.report.mathml import to_mathml
from klearlib.report.render import render, style_sheet
from klearlib.run.files import write_text

_IMAGES = ("image/png", "image/jpeg")
_KINDS = ("text/html", "text/markdown", "image/svg+xml", "text/latex", *_IMAGES, "text/plain")
_ACTIVE = ("script", "iframe", "object", "embed", "link", "base")
_LOADED = ("src", "srcset", "poster", "background", "data", "xlink:href")
_REMOTE = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)
_REMOTE_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*(?:https?:)?//""", re.IGNORECASE)


def render_notebook(ipynb: Path, html: Path) -> Path:
    """Write an executed notebook with its outputs as the page `html`; equal notebooks give equal
    bytes.

    nbconvert renders the cells; its page frames load scripts from the network, so the frame is
    ours. Formulas in markdown become MathML; outputs that are scripts or widgets are shown as their
    text.

    Raises KlearError where the notebook cannot be read, a formula cannot be drawn, or an output
    refers to something outside the file.
    """
    import nbformat
    from pygments.formatters import HtmlFormatter

    try:
        notebook = nbformat.read(Path(ipynb), as_version=4)
    except (OSError, ValueError, AttributeError, nbformat.ValidationError) as error:
        raise KlearError(f"{ipynb} cannot be read as a notebook: run it again") from error
    body, _ = _exporter().from_notebook_node(_passive(notebook))
    needs = _Needs()
    needs.feed(body)
    if needs.found:
        raise KlearError(
            f"{ipynb} holds {needs.found[0]}, which needs a script or the network: show text, a "
            "table or an image instead"
        )
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    css = style_sheet("page.css", "executed.css")
    css += f"\n{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}"
    text = render("executed.html.j2", title=Path(ipynb).stem, css=css, cells=body)
    return write_text(html, text, durable=False, make_folder=True)


class _Needs(HTMLParser):
    """Collects what a page would run or load from elsewhere; links that a reader follows are
    fine."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        if tag in _ACTIVE:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            loads = name in _LOADED and _REMOTE.match(value or "")
            styled = name == "style" and _REMOTE_STYLE.search(value or "")
            if loads or styled or name.startswith("on"):
                self.found.append(f"{name}={value!r}")

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style and _REMOTE_STYLE.search(data):
            self.found.append("a style sheet from elsewhere")


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
            if "text/latex" in shown and "text/html" not in shown:
                latex = shown["text/latex"].strip().strip("$").strip()
                output["data"]["text/html"] = to_mathml(latex)
    return notebook


def _exporter():
    """nbconvert's HTML exporter with formulas by `to_mathml`."""
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
