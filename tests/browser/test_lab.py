"""Notebook 05 in JupyterLab as a person uses it: run all, mistype, correct, interrupt, go on,
restart. Pictures of each step go to build/browser, or to $KLEAR_PICTURES."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from browsing import PICTURES, git, wait_for

from klearlib.run.entry import DONE, LOCK, PROGRESS
from klearlib.run.stage import is_locked

NAME = "05_clipping"
SMALL = {"rules": '["gppo", "clip_higher"]', "seeds": "[0]", "num_steps": "3"}
RUN_S = 120_000
REPORT = re.compile(r"report\.html$")


def test_notebook_05_as_a_person_uses_it(lab, page):
    original = cell_source(lab)
    wanted = original
    for name, value in SMALL.items():
        wanted = re.sub(rf"^({name}: .*) = .*(  #)", rf"\1 = {value}\2", wanted, flags=re.M)
    page.goto(f"{lab.url}/lab/tree/notebooks/{NAME}.ipynb?reset")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()

    # A mistyped name is refused in one line, and gone when it is corrected.
    write_parameters(page, wanted.replace("num_steps:", "num_step:"))
    run_all(page)
    see(page, "unknown parameter 'num_step': did you mean 'num_steps'")
    assert "Traceback" not in seen(page)
    picture(page, "1_mistyped", 1)
    write_parameters(page, wanted)
    run_all(page)

    # Interrupted while a stage runs: one line, and nothing goes on behind it.
    wait_for(lambda: working(lab), 60, what="a stage that works")
    time.sleep(1)  # the page shows it
    picture(page, "2_running", 5)
    idle = lab.marked()
    page.locator('[data-jp-item-name="interrupt"]').first.click()
    see(page, "stopped, state saved: run again to go on")
    assert "Traceback" not in seen(page) and "KeyboardInterrupt" not in seen(page)
    assert not locked(lab) and lab.marked() < idle
    picture(page, "3_interrupted", 5)
    before = done(lab)

    # Run again: it goes on, ends with links, and the report is there.
    run_all(page)
    page.get_by_role("link", name=REPORT).wait_for(timeout=RUN_S)
    after = done(lab)
    assert before.items() < after.items()
    for place in range(page.locator(".jp-CodeCell").count()):
        picture(page, f"4_cell_{place:02}", place)
    table = page.locator(".jp-RenderedHTMLCommon table").all_inner_texts()
    assert len(table) > 5 and not any("NaN" in text for text in table)
    (file,) = (lab.clone / "results").glob(f"*/{NAME}/section.json")
    section = json.loads(file.read_text())
    assert section["status"] == "complete" and section["parameters"]["num_steps"] == 3
    assert file.stat().st_mtime <= (file.parents[1] / "report.html").stat().st_mtime
    page.get_by_role("link", name=REPORT).click()
    report = page.frame_locator(".jp-HTMLViewer iframe, .jp-IFrame iframe").first
    report.get_by_role("heading", name="klear: changed from profile smoke").wait_for()
    page.screenshot(path=PICTURES / "5_report.png")
    page.get_by_role("tab", name=f"{NAME}.ipynb").click()
    page.get_by_role("link", name="scores", exact=True).click()
    page.locator(".jp-CSVViewer").wait_for()
    page.screenshot(path=PICTURES / "6_scores.png")
    page.get_by_role("tab", name=f"{NAME}.ipynb").click()

    # A restarted kernel finds everything.
    page.locator('[data-jp-item-name="restart-and-run"]').first.click()
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.get_by_role("link", name=REPORT).wait_for(state="detached")
    page.get_by_role("link", name=REPORT).wait_for(timeout=RUN_S)
    assert done(lab) == after
    picture(page, "7_restarted", 5)

    # git sees what was changed in the cells, and nothing of their runs.
    save(page, lab, wanted)
    assert all(cell["outputs"] for cell in code_cells(lab)[1:]), "the file keeps what was seen"
    changed = git(lab.clone, "diff", "-U0").splitlines()
    changed = [line for line in changed if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2 * len(SMALL) and all("= " in line for line in changed)
    write_parameters(page, original)
    save(page, lab, original)
    assert git(lab.clone, "status", "--porcelain") == ""


def write_parameters(page, source: str) -> None:
    """Write those lines of the parameters cell anew that are others than in `source`."""
    shown = page.locator(".jp-CodeCell").first.locator(".cm-line")
    for place, line in enumerate(source.splitlines()):
        if shown.nth(place).inner_text() != line:
            shown.nth(place).click()
            page.keyboard.press("Home")
            page.keyboard.press("Shift+End")
            page.keyboard.insert_text(line)


def run_all(page) -> None:
    page.locator(".lm-MenuBar-itemLabel").get_by_text("Run", exact=True).click()
    page.locator(".lm-Menu-itemLabel").get_by_text("Run All Cells", exact=True).click()


def save(page, lab, source: str) -> None:
    before = notebook(lab).stat().st_mtime_ns
    page.keyboard.press("Control+S")
    wait_for(lambda: notebook(lab).stat().st_mtime_ns > before, 10, what="the saved notebook")
    page.wait_for_timeout(1000)  # JupyterLab's hook comes after
    assert cell_source(lab) == source


def see(page, text: str) -> None:
    page.locator(".jp-OutputArea-output", has_text=text).first.wait_for(timeout=RUN_S)


def seen(page) -> str:
    return "\n".join(page.locator(".jp-OutputArea-output").all_inner_texts())


def picture(page, name: str, cell: int) -> None:
    """The window with a code cell at its top."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.locator(".jp-CodeCell").nth(cell).evaluate("cell => cell.scrollIntoView(true)")
    page.wait_for_timeout(300)
    page.screenshot(path=PICTURES / f"{name}.png")


def notebook(lab) -> Path:
    return lab.clone / "notebooks" / f"{NAME}.ipynb"


def code_cells(lab) -> list[dict]:
    """As the notebook on disk has them."""
    cells = json.loads(notebook(lab).read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def cell_source(lab) -> str:
    """Of the parameters."""
    return "".join(code_cells(lab)[0]["source"])


def runs(lab, name: str) -> list[Path]:
    return sorted((lab.clone / "results" / "runs").glob(f"*/*/{name}"))


def done(lab) -> dict[str, int]:
    """Finished stages and when they finished."""
    return {str(path.parent): path.stat().st_mtime_ns for path in runs(lab, DONE)}


def locked(lab) -> list[Path]:
    """The folders of the stages that run."""
    return [path.parent for path in runs(lab, LOCK) if is_locked(path)]


def working(lab) -> bool:
    """Whether a stage runs that has told how far it is, after one that is done."""
    return bool(done(lab)) and any((folder / PROGRESS).exists() for folder in locked(lab))
