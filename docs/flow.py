"""The flow of data as a picture: ``python docs/flow.py`` writes it into docs/architecture.md.

Made from the stages that all notebooks ask for at the profile smoke: a box for each kind of stage,
an arrow for each input, and for each notebook the kinds of stages whose results it reads.
"""

from __future__ import annotations

from pathlib import Path

from klearlib.experiments.catalogue import check, experiment_of, names, stages_of
from klearlib.params import load_profile

PAGE = Path(__file__).with_name("architecture.md")
START, END = "<!-- flow -->", "<!-- end of flow -->"


def picture() -> str:
    """The picture as Mermaid, which code hosts draw."""
    arrows: dict[tuple[str, str], None] = {}
    read: dict[str, dict[str, None]] = {}
    for name in names():
        params = check(name, load_profile("smoke", name))
        for stage in stages_of(name, params).values():
            for upstream in stage.inputs.values():
                arrows[upstream.name, stage.name] = None
        for stage in experiment_of(name)(params).stages():
            read.setdefault(stage.name, {})[name[:2]] = None
    lines = ["```mermaid", "flowchart LR"]
    lines += [f"  {a} --> {b}" for a, b in arrows]
    lines += [f"  {kind} -.-> n{kind}[/notebooks {', '.join(who)}/]" for kind, who in read.items()]
    return "\n".join([*lines, "```"])


def page() -> str:
    """The page with the picture of this moment."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{picture()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
