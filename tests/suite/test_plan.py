"""The plan of a profile: what stands in it, and that plan, run, doctor and pages say the same."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from machines import GB, LAPTOP, SERVER

from klearlib import cli
from klearlib.experiments.catalogue import check, experiment_of, notebooks_of, stages_of
from klearlib.params import load_profile
from klearlib.params.place import place_of
from klearlib.run.stage import Stage
from klearlib.scale.require import INSTALL_RAY
from klearlib.suite import doctor
from klearlib.suite import plan as module
from klearlib.suite.checks import Machine, short
from klearlib.suite.estimate import CPU_FLOPS, Cost, cost_of
from klearlib.suite.plan import Plan, PlannedNotebook, describe, plan, weighed

REPOSITORY = Path(__file__).resolve().parents[2]


def put(monkeypatch, machine: Machine) -> None:
    monkeypatch.setattr(module, "this_machine", lambda: machine)


@functools.cache
def forced(profile: str, only: tuple[str, ...] = ()) -> list[PlannedNotebook]:
    return plan(profile, only, force=True)


def missing(profile: str, only: tuple[str, ...] = (), **changes) -> list[str]:
    planned = []
    for each in forced(profile, only):
        checked = check(each.name, each.values | changes) if changes else each.experiment.params
        planned.append(replace(each, experiment=type(each.experiment)(checked)))
    return weighed(profile, planned).missing


def planned(name: str, why: str = "forced") -> PlannedNotebook:
    place = place_of("mini", {})
    return PlannedNotebook(experiment_of(name)(None, place), why, {}, {})


def test_the_plan_adds_up():
    first = Cost(sampled=2e6, flops=1e15, gpu_s=3600, here_s=600, memory=3 * GB)
    second = Cost(sampled=1e6, trained=4e6, flops=1e15, gpu_s=1800, here_s=30)
    costs = {"05_clipping": first, "06_alpha_sweep": second, "00_overview": Cost(here_s=4)}
    found = [planned(name) for name in costs]
    found.insert(2, planned("07_soft_reward", ""))
    text = describe(Plan(found, costs, on_gpus=True))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[1] == "05_clipping run 10 min 2 M 1.0e15 3 GB 1"
    assert lines[3:5] == ["07_soft_reward cached", "00_overview run 4 s"]
    assert lines[5] == "in all 11 min 3 M 4 M 2.0e15 3 GB 1.5"
    for words in ("Why: forced (05 06 00)", "docs/gpu.md"):
        assert words in text
    assert not {"H100", "GPU h"} & set(describe(Plan(found, costs)).split())
    text = describe(Plan(found, costs, on_gpus=True, missing=["a GPU"]))
    assert text.endswith("\nmissing: a GPU") and "10 min" not in text


def test_the_time_is_that_of_the_work_or_of_the_longest_chain(monkeypatch):
    """A stage of a large model takes what its arithmetic takes, whatever the miniature's would."""
    first = Stage("a", "klearlib.errors:KlearError", {}, estimate_s=10.0)
    second = replace(first, name="b", inputs={"first": first})
    others = [replace(first, name=name) for name in ("c", "d", "e")]
    small, large = Cost(flops=1.0), Cost(flops=100 * CPU_FLOPS, gpu_s=3.0)

    def seconds(stages, costs, machine=LAPTOP):
        known = {id(stage): cost for stage, cost in zip(stages, costs, strict=True)}
        monkeypatch.setattr(module, "cost_of", lambda stage: known[id(stage)])
        return module._cost_here(stages, machine, workers=2).here_s - module.NOTEBOOK_S

    assert seconds([first, second], [small] * 2) == 20
    assert seconds([first, second], [small, large]) == 110
    assert seconds([first, second, *others], [small] * 5) == 25
    assert seconds([first, second], [small, large], SERVER) == 13
    assert seconds([], []) == 0


@pytest.mark.parametrize("profile", ["gpu", "paper", "mini"])
def test_the_plan_fits_on_a_page(monkeypatch, profile):
    put(monkeypatch, SERVER)
    text = describe(weighed(profile, forced(profile)))
    lines = [line for line in text.splitlines() if not line.startswith("missing: ")]
    assert len(lines) <= 40 and max(map(len, lines)) <= 80


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_small_profiles_are_never_refused(profile, monkeypatch):
    """Not on a laptop without a GPU, and not on a small card either."""
    for each in (LAPTOP, replace(LAPTOP, gpus=(8 * GB,))):
        put(monkeypatch, each)
        assert weighed(profile, forced(profile)).missing == []


def test_a_gpu_profile_is_refused_on_cores_and_not_on_a_server(monkeypatch):
    put(monkeypatch, SERVER)
    assert missing("gpu") == []
    put(monkeypatch, LAPTOP)
    found = weighed("gpu", forced("gpu"))
    said = found.missing
    assert any("days" in line for line in said) and len(said) == len(set(said))
    assert list(found.costs) == [each.name for each in found.notebooks]


def test_plan_doctor_and_run_say_the_same(monkeypatch, capsys):
    put(monkeypatch, LAPTOP)
    assert cli.main(["plan", "--profile", "gpu", "--only", "05"]) == 0
    printed = capsys.readouterr().out.splitlines()
    said = [line.partition("missing: ")[2] for line in printed if "missing:" in line]
    assert len(said) == 2 and "of memory" in said[0] and "days" in said[1]
    assert cli.main(["run", "--profile", "gpu", "--only", "05"]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error == ["klear: 2 things keep this run from finishing:", *(f"  {x}" for x in said)]
    found = doctor._profile("gpu")
    assert found.fix == "2 things are missing: klear plan --profile gpu names them"
    assert not found.required
    put(monkeypatch, replace(LAPTOP, memory=64 * GB))
    found = doctor._profile("gpu")  # a single thing is said
    assert "days" in found.fix
    assert cli.main(["run", "--profile", "gpu", "--only", "05"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("klear: 2 cores would take about") and error.count("\n") == 1


def test_the_workers_that_are_asked_for_reach_the_plan(monkeypatch, capsys):
    put(monkeypatch, replace(SERVER, gpus=(24 * GB,)))
    command = ["plan", "--profile", "gpu", "--only", "05"]
    assert cli.main(command) == cli.main([*command, "--workers", "2"]) == 0
    assert "missing" not in capsys.readouterr().out
    assert cli.main([*command, "--workers", "4"]) == 0
    assert "its stages, 4 at a time, need" in capsys.readouterr().out
    assert cli.main(["run", *command[1:], "--workers", "4"]) == 1
    assert "give fewer --workers" in capsys.readouterr().err


def test_plan_and_run_of_the_paper_say_the_same(monkeypatch, capsys):
    put(monkeypatch, replace(LAPTOP, packages=SERVER.packages))
    lines = missing("paper", ("05",))
    (line,) = [each for each in lines if "GPUs" in each]
    assert "params/paper/compute.yaml, verl asks for 256 GPUs and this machine has none" in line
    # RL is not a stage of one card any more.
    assert not [each for each in lines if "of GPU memory" in each or "days" in each]
    assert cli.main(["run", "--profile", "paper", "--only", "05"]) == 1
    assert line in capsys.readouterr().err


def test_a_ray_for_the_workers_that_is_not_here_is_a_lack(monkeypatch):
    put(monkeypatch, LAPTOP)
    found = missing("gpu", ("08",), workers="ray")
    assert found[-1:] == [f"Ray is not installed: {INSTALL_RAY}"]
    put(monkeypatch, replace(LAPTOP, packages=frozenset({"ray"})))
    assert f"Ray is not installed: {INSTALL_RAY}" not in missing("gpu", ("08",), workers="ray")


def test_the_profiles_are_planned_without_torch():
    code = (
        "import sys; from klearlib.cli import main; main(['plan', '--profile', 'gpu']);"
        "print({'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")


def stages(profile: str) -> dict[str, dict[str, Stage]]:
    """Of each notebook, less those of a notebook before it."""
    seen, found = {}, {}
    for notebook in notebooks_of(profile):
        mine = stages_of(notebook, check(notebook, load_profile(profile, notebook)))
        found[notebook] = {digest: stage for digest, stage in mine.items() if digest not in seen}
        seen |= mine
    return found


def page(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_the_table_of_the_page_is_what_the_plan_says():
    """docs/gpu.md and the README name what the profile gpu takes from nothing."""

    def row(name: str, cost: Cost) -> str:
        cells = [name, *(f"{short(each / 1e6)} M" for each in (cost.sampled, cost.trained))]
        return f"\n| {' | '.join([*cells, f'{cost.flops:.2g}', short(cost.gpu_s / 3600)])} |\n"

    text, total = page("docs/gpu.md"), Cost()
    for notebook, mine in stages("gpu").items():
        cost = sum(map(cost_of, mine.values()), Cost())
        total += cost
        assert not cost.gpu_s or row(notebook, cost) in text
    assert row("in all", total) in text
    hours = f"By the plan: {total.gpu_s / 3600:.2g} hours of an H100"
    assert hours in page("README.md") and total.gpu_s < 24 * 3600


def test_what_the_paper_needs_is_the_same_in_the_plan_and_on_the_pages():
    of_paper = [stage for mine in stages("paper").values() for stage in mine.values()]
    most, total = {}, Cost()
    for stage in of_paper:
        cost = cost_of(stage)
        total += cost
        most[stage.name] = max(most.get(stage.name, 0), round(cost.memory / GB))
        assert stage.params.get("compute", {}).get("engine") in (None, "transformers")
    text, comment = page("docs/gpu.md"), page("params/paper/compute.yaml")
    for name in ("responses", "evaluate", "sft"):
        assert f"{most[name]} GB" in text and f"{most[name]} GB" in comment
    assert f"| {round(total.gpu_s / 3600, -2):,.0f}: " in text
    # docs/cluster.md has the RL runs on clusters of several sizes.
    for nodes in (1, 4, 8, 32):
        total = Cost()
        for run in (stage for stage in of_paper if "cluster" in stage.params):
            resources = run.placing["resources"] | {"nodes": nodes}
            total += cost_of(replace(run, placing={"resources": resources}))
        hours = total.gpu_s / 3600
        numbers = f"{hours:,.0f} | {hours / 24 / 8 / nodes:.0f} |"
        rows = [
            line for line in page("docs/cluster.md").splitlines() if line.startswith(f"| {nodes} ")
        ]
        assert [each.endswith(numbers) for each in rows] == [True], numbers
