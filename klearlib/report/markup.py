"""HTML as nested calls: text is escaped unless it is markup, so no value can break the page."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that already is HTML."""

    __slots__ = ()


def element(tag: str, /, *children, **attributes) -> Markup:
    """One HTML element.

    Args:
        tag: its name.
        children: text (escaped), `Markup`, None (left out), or a list of these.
        attributes: None is left out and True has no value; a trailing underscore is dropped and the
            others become hyphens (``class_``, ``aria_label``).

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    opening = tag
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        opening += f" {key}" if value is True else f' {key}="{escape(str(value))}"'
    if tag in ("img", "meta", "br", "hr"):
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{render(children)}</{tag}>")


def render(children) -> Markup:
    """A child, or a list of children, as HTML."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, (list, tuple)):
        return Markup("".join(map(render, children)))
    return Markup(escape(str(children), quote=False))
