"""The command line: exit codes, one-line errors, and what doctor and status say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from klearlib import cli
from klearlib.experiments.catalogue import experiment_of
from klearlib.params import parameters_cell
from klearlib.suite import doctor, notebooks

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with notebook 05 in the profiles smoke and mini."""
    for profile in ("smoke", "mini"):
        (tmp_path / "params" / profile).mkdir(parents=True)
        (tmp_path / "params" / profile / "05_clipping.yaml").write_text(
            f"profile: {profile}\ncode: false\n"
        )
        for name in ("worlds.yaml", "compute.yaml", "statistics.yaml"):
            content = (REPOSITORY / "params" / "smoke" / name).read_bytes()
            (tmp_path / "params" / profile / name).write_bytes(content)
    (tmp_path / "notebooks").mkdir()
    cell = {"cell_type": "code", "source": parameters_cell(experiment_of("05_clipping").Params)}
    content = {"cells": [cell], "metadata": {}}
    (tmp_path / "notebooks" / "05_clipping.ipynb").write_text(json.dumps(content))
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def test_plan_says_what_a_run_would_do(project, capsys):
    assert cli.main(["plan", "--profile", "mini"]) == 0
    printed = capsys.readouterr().out
    _, row, total, *notes = printed.splitlines()
    assert row.split()[:2] == ["05_clipping", "run"] and "0.078 M" in row
    assert total.startswith("in all") and total.split()[2].isdecimal()
    assert notes[-1] == "Why: not run here yet (05)"
    assert "missing" not in printed and "GPU" not in printed and "H100" not in printed
    assert cli.main(["plan"]) == 0
    assert row in capsys.readouterr().out  # mini is what is run without a word
    assert not (project / "results").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--profile", "gpu"], "klear: unknown profile 'gpu'; there are: mini, smoke\n"),
        (["run", "--only", "06"], "klear: profile 'mini' has no notebook '06'; there are: 05"),
        (["run", "--only", "05,06"], "klear: profile 'mini' has no notebook '06'; there are: 05"),
        (["run", "--profil", "mini"], "unrecognized arguments: --profil mini"),
        (["plan", "--set", "seed=[0]"], "has a parameter 'seed'; did you mean 'seeds'"),
        (["plan", "--set", "seeds"], "--set seeds: write NAME=VALUE"),
        (["plan", "--set", "05.seeds=[0]"], "--set 05.seeds=[0]: write NAME=VALUE"),
        (["plan", "--set", "options.dual_clip=3"], "a mapping whole: options={dual_clip: 10.0}"),
        (["plan", "--set", "seeds=[0"], "--set seeds=[0: line 2: did not find expected ','"),
        (["plan", "--set", "seeds=0"], "seeds must be a list of integers, got 0: write [0]"),
        (["plan", "--set", "profile=mini"], "has a parameter 'profile'"),
        (["plan", "--out", "/tmp/mine"], "name a folder in "),
        (["report", "--profile", "gpu"], "klear: unknown profile 'gpu'"),
        (["status", "--profile", "gpu"], "klear: unknown profile 'gpu'"),
        (["run", "--workers", "-1"], "workers is '-1': give a whole number"),
        (["plan", "--workers", "rays"], "workers is 'rays': give"),
        (["rum"], "invalid choice: 'rum'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(project, capsys, words, message):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_klear_alone_prints_its_help(capsys):
    assert cli.main([]) == 2
    told = capsys.readouterr()
    assert told.out.startswith("usage: klear ") and "status" in told.out and not told.err


def test_arguments_reach_the_runner(project, monkeypatch):
    calls = []
    monkeypatch.setattr(notebooks, "run", lambda *given, **named: calls.append((given, named)) or 7)
    words = ["--profile", "mini", "--only", "5", "0", "--force", "--keep-going", "--workers", "3"]
    words += ["--set", "seeds=[0]", "--set", "num_steps=3", "--out", "results/mine"]
    assert cli.main(["run", *words]) == 7
    named = {"force": True, "keep_going": True, "workers": 3, "tensorboard": None}
    named |= {"settings": ["seeds=[0]", "num_steps=3"], "out": "results/mine"}
    assert calls == [(("mini", ["5", "0"]), named)]


def test_an_unwritable_folder_is_one_line(project, capsys):
    (project / "results").write_text("a file where a folder should be")
    assert cli.main(["run"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("klear: cannot ")
    assert error.count("\n") == 1


def test_ctrl_c_outside_a_run(project, monkeypatch):
    def interrupt(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(notebooks, "run", interrupt)
    assert cli.main(["run"]) == 130


WAITING = """import signal, sys, time
for number in (signal.SIGHUP, signal.SIGQUIT):  # which a shell may have had us ignore
    signal.signal(number, signal.SIG_DFL)
from klearlib import cli
from klearlib.suite import status
def wait(profile):
    print("ready", flush=True)
    exec("time.sleep(60)")  # a KeyboardInterrupt that passes through one is Python's to end by
status.describe_status = wait
sys.exit(cli.main(["status"]))"""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        (signal.SIGINT, 130),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(signal.SIGQUIT, 131, marks=pytest.mark.slow),
    ],
)
def test_any_signal_that_stops_is_told_in_one_line(tmp_path, number, code):
    (tmp_path / "waiting.py").write_text(WAITING)
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    how["env"] = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-m", "waiting"], **how) as waiting:
        assert waiting.stdout.readline() == "ready\n"
        waiting.send_signal(number)
        assert waiting.communicate(timeout=60) == ("", "klear: stopped\n")
    assert waiting.returncode == code


@pytest.mark.parametrize("with_errors", [False, True])
def test_a_reader_that_goes_away_is_no_traceback(project, with_errors):
    reader, writer = os.pipe()
    os.close(reader)
    errors = writer if with_errors else subprocess.PIPE
    command = [sys.executable, "-m", "klearlib.cli", "status"]
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    how = {"cwd": REPOSITORY, "env": buffered, "text": True}
    done = subprocess.run(command, stdout=writer, stderr=errors, **how)
    os.close(writer)
    assert done.returncode == 141
    assert with_errors or done.stderr == "klear: stopped: output pipe closed\n"


def test_a_full_disk_is_no_traceback():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    command = f"{sys.executable} -m klearlib.cli status --profile smoke > /dev/full"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert done.returncode == 1 and "no space left for its output" in done.stderr
    assert done.stderr.count("\n") == 1


def test_report_of_what_never_ran_is_one_line(project, capsys):
    assert cli.main(["report"]) == 1
    said = "klear: nothing has been run at profile mini yet: klear run --profile mini\n"
    assert capsys.readouterr().err == said
    assert not (project / "results").exists()


def test_command_and_make_have_the_same_profile():
    assert f"\nPROFILE ?= {cli.PROFILE}\n" in (REPOSITORY / "Makefile").read_text()


def test_doctor_finds_this_machine_fit(project, capsys):
    assert cli.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "MISSING" not in printed
    for name in ("Python", "packages", "GPU", "engine: vllm", "profile mini"):
        assert name in printed


def test_doctor_names_each_lack_with_its_fix(project, capsys, monkeypatch):
    asked = [Requirement(each) for each in ("torch>=99", "klear-nothing", "vllm==0.0")]
    monkeypatch.setattr(doctor, "needed", lambda extra="": asked[-1:] if extra else asked[:-1])
    (project / "params/smoke/05_clipping.yaml").write_text("num_step: 3\n")
    assert cli.main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    missing = [line for line in lines if line.startswith("MISSING")]
    assert len(missing) == 2
    assert missing[0].startswith("MISSING  packages           torch ")
    assert missing[0].endswith(", klear-nothing not installed; pip install -e .")
    assert "did you mean 'num_steps'?" in missing[1]
    del asked[1]
    assert cli.main(["doctor"]) == 1
    (other,) = [line for line in capsys.readouterr().out.splitlines() if " packages " in line]
    assert other.startswith("lacks") and other.endswith("; klear was tested with torch>=99")


def test_a_lack_of_another_profile_does_not_stop_smoke(project, capsys):
    (project / "params/mini/05_clipping.yaml").write_text("num_step: 3\n")
    assert cli.main(["doctor"]) == 0
    assert "lacks    profile mini       not ready; 05_clipping: unknown" in capsys.readouterr().out


def test_status_has_a_word_for_everything(project, capsys):
    runs = project / "results" / "runs" / "rl"
    for key, file in (("a", "done.json"), ("b", "checkpoint.json"), ("c", "log.txt")):
        (runs / key).mkdir(parents=True)
        (runs / key / file).write_text("{}")
    (runs / "b" / "progress.json").write_text('{"done": 12, "total": 30, "updated": 0}')
    (runs / "b" / "spec.json").write_text('{"label": "GPPO, seed 0"}')
    published = project / "results" / "smoke" / "05_clipping"
    published.mkdir(parents=True)
    section = {"status": "partial", "missing": ["GPPO, seed 1", "CISPO, seed 0"]}
    (published / "section.json").write_text(json.dumps(section))
    assert cli.main(["status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "smoke",
        "  05_clipping         partial   missing: GPPO, seed 1, CISPO, seed 0",
        "runs",
        "  rl                  1 done, 1 partial",
        "    b partial 12/30 GPPO, seed 0",
    ]
    (published / "section.json").write_text(json.dumps(section | {"missing": ["\x1b[2J"]}))
    assert cli.main(["status", "--profile", "smoke"]) == 0
    assert "partial   missing: \\x1b[2J\n" in capsys.readouterr().out
    (published / "section.json").write_text("{")
    (runs / "a" / "metrics.jsonl").write_text("x\n")  # of the run that is done
    assert cli.main(["status", "--profile", "smoke"]) == 0
    told = capsys.readouterr().out
    assert "05_clipping         broken" in told
    assert "    a broken: " in told and "b partial 12/30" in told


def test_status_has_one_line_for_results_that_came_from_elsewhere(project, capsys):
    words = "published, not by klear run here"
    for place in ("mini", "mini-x"):
        published = project / "results" / place / "05_clipping"
        published.mkdir(parents=True)
        (published / "section.json").write_text('{"status": "complete"}')
    changes = '{"profile": "mini", "changes": {"num_steps": 3}}'
    (published.parent / "changes.json").write_text(changes)
    assert cli.main(["status"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [f"mini: {words}", f"mini-x (num_steps: 3): {words}"]
    (project / "params" / "mini" / "06_alpha_sweep.yaml").write_text("profile: mini\n")
    ran = project / "results" / "mini" / "06_alpha_sweep"
    ran.mkdir()
    (ran / "cache.json").write_text("{}")
    assert cli.main(["status", "--profile", "mini"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "mini" and told[1].startswith("  06_alpha_sweep      broken    ")
    assert told[2:] == [f"  05 {words}", f"mini-x (num_steps: 3): {words}"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smoke/05_clipping/section.json", "section.json is not the JSON"),
        ("smoke/05_clipping/cache.json", "cache.json is damaged"),
        ("smoke-x/changes.json", "changes.json is not the JSON"),
        ("../notebooks/05_clipping.ipynb", "05_clipping.ipynb is not a notebook ("),
    ],
)
def test_json_that_was_cut_off_is_named(project, capsys, name, words):
    path = project / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (project / "results").mkdir(exist_ok=True)
    path.write_text('{"cells": [')
    cli.main(["status"])
    cli.main(["plan", "--profile", "smoke"])
    told = capsys.readouterr()
    assert words in told.out + told.err


def test_version_and_help_without_torch():
    code = (
        "import sys; from klearlib.cli import main;"
        "codes = main(['--version']), main(['--help']), main(['run', '--help']);"
        "print(codes, {'torch', 'papermill', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("(0, 0, 0) set()\n")


def test_rules_is_notebook_12_of_full_for_one_rule_beside_clip_higher(tmp_path, monkeypatch):
    from klearlib.suite.plan import plan

    (tmp_path / "mine.py").write_text("def half(ratio, advantage):\n    return ratio / 2\n")
    for name in ("params", "notebooks"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    asked = []
    monkeypatch.setattr(notebooks, "run", lambda *of, **how: asked.append((of, how)) or 0)
    assert cli.main(["rules", "mine.py:half", "--worlds", "2"]) == 0
    ((profile, only), how) = asked[0]
    (planned,) = plan(profile, only, settings=how["settings"], out=how["out"])
    e = planned.experiment
    assert e.place.folder == tmp_path / "results" / "own-rule-half"
    assert list(e.rules) == ["clip_higher", "half"] and e.own == ["half"]
    assert e.params.seeds == [200, 201] and e.rates_of("half") == e.params.common_rates
    assert len(e.stages()) == 2 * 2 * 2 and not e.variant_arms
    everything = experiment_of("12_rules").params_of("full")
    theirs = experiment_of("12_rules")(everything).arms["learning rate 0.0001: clip_higher", 200]
    assert e.arms["learning rate 0.0001: clip_higher", 200].key == theirs.key
