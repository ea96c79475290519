"""How far a profile is, at the head of its page."""

from __future__ import annotations

from klearlib.params import NOTEBOOKS
from klearlib.report.markup import Markup, element
from klearlib.report.sections import Section


def state_view(profile: str, sections: list[Section]) -> Markup:
    """How many notebooks are complete, and what the others lack."""
    whole = f"{len(NOTEBOOKS)} notebooks"
    complete = [each for each in sections if each.content["status"] == "complete"]
    command = element("code", f"klear run --profile {profile}")
    if not sections:
        return element("p", "Nothing has been run at this profile yet. Start with ", command, ".")
    if len(complete) == len(NOTEBOOKS):
        return element("p", element("strong", f"All {whole} are complete."), class_="state")
    partial = [each for each in sections if each not in complete]
    absent = [name for name in NOTEBOOKS if name not in {each.notebook for each in sections}]
    items = [
        element(
            "li", element("a", each.notebook, href=f"#{each.notebook}"), ": interim, ",
            f"{len(each.content['missing']) or 'some'} runs missing",
        )
        for each in partial
    ]  # fmt: skip
    if absent:
        items.append(element("li", "not run yet: ", ", ".join(absent)))
    return element(
        "div",
        element("strong", f"{len(complete)} of {whole} are complete."),
        " The rest, which ",
        command,
        " goes on with:",
        element("ul", items),
        class_="banner state",
    )
