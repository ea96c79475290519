"""The stages that make a world and a model of files of this machine: nothing is copied that is
large, nothing is dropped without a reason, what the curves are measured on is trained on by nobody,
and what is wrong is one line that says what to do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from real_project import SHAPE, card_of, change, rows_of, run_here, write_model, write_rows

from klearlib.data.problems import read_problems
from klearlib.data.tables import read_rows
from klearlib.errors import DamagedEntry, KlearError, MissingAsset
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.origins import origin
from klearlib.params import load
from klearlib.policy.load import load_policy
from klearlib.real import model as model_stage
from klearlib.real.assets import missing_assets
from klearlib.real.world import (
    NEAR_HELD_OUT,
    NOT_DRAWN,
    NOTHING_TO_JUDGE_BY,
    OTHER_DOMAIN,
    VALIDATION,
    build,
    near_held_out,
)
from klearlib.records import Problem
from klearlib.run.folder import RunFolder
from klearlib.run.stage import is_done


def linked(folder, model, **how):
    values = {"chat_template": None, "template_content": None, "positions": 64, "shape": SHAPE}
    values["content"] = None
    model_stage.link_model(RunFolder(folder), {}, model=str(model), **(values | how))


def test_a_model_is_linked_and_verified_through_its_links(project):
    stage = origin("tiny").stages["base"]
    folder = run_here(stage)
    assert (folder / "model" / "model.safetensors").is_symlink()
    assert not (folder / "model" / "config.json").is_symlink()
    model, tokenizer = load_policy(folder / "model")
    assert model.config.hidden_size == 16 and tokenizer.chat_template
    assert model.config.max_position_embeddings == 512
    assert is_done(stage, runs_dir())
    (project / "models" / "tiny" / "model.safetensors").unlink()
    with pytest.raises(DamagedEntry, match=r"model\.safetensors is missing"):
        is_done(stage, runs_dir())


def test_a_config_allows_the_budget_after_the_longest_prompt(tmp_path):
    """Qwen3-8B-Base allows 32,768 positions, which the paper's budget alone fills."""
    write_model(tmp_path / "tiny")
    linked(tmp_path / "run", tmp_path / "tiny", positions=700)
    model, _ = load_policy(tmp_path / "run" / "model")
    assert model.config.max_position_embeddings == 700
    own = json.loads((tmp_path / "tiny" / "config.json").read_text())
    assert own["max_position_embeddings"] == 512, "the model's own file is not written"
    assert card_of(tmp_path / "run")["max_positions"] == {"own": 512, "allowed": 700}


def test_a_model_of_another_shape_or_without_template_is_refused(tmp_path):
    write_model(tmp_path / "odd", chat_template=False, intermediate_size=48)
    with pytest.raises(KlearError, match="intermediate_size is 48, real"):
        linked(tmp_path / "a", tmp_path / "odd")
    shape = SHAPE | {"intermediate_size": 48}
    with pytest.raises(KlearError, match="has no chat template"):
        linked(tmp_path / "b", tmp_path / "odd", shape=shape)
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    linked(tmp_path / "b", tmp_path / "odd", shape=shape, chat_template=str(template))
    _, tokenizer = load_policy(tmp_path / "b" / "model")
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert asked == "[x]"
    assert not (tmp_path / "odd" / "chat_template.jinja").exists()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("GatedRepoError", "accept its licence on the model's page and `hf auth login`"),
        ("RepositoryNotFoundError", "correct the name"),
        ("LocalEntryNotFoundError", "cannot be fetched .* connect and run `hf download Org/Tiny`"),
        ("ConnectionError", "cannot be fetched"),
    ],
)
def test_what_keeps_a_model_away_is_one_line(tmp_path, monkeypatch, error, words):
    import huggingface_hub
    from huggingface_hub import errors

    def refuse(*_, **__):
        kind = getattr(errors, error, ConnectionError)
        raise kind.__new__(kind, "first line\nsecond")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(MissingAsset, match=words) as caught:
        linked(tmp_path / "run", "Org/Tiny")
    assert "\n" not in str(caught.value)


def test_worlds_hold_out_and_account_for_every_problem(project):
    for domain, total in (("math", 20), ("code", 20)):
        start = origin("tiny").start(domain)
        folder = run_here(start.world)
        train, held_out = (
            {p.id for p in read_problems(folder / f"{name}.jsonl")}
            for name in ("train", "validation")
        )
        assert len(train) == 12 and len(held_out) == 4 and not train & held_out
        card = card_of(folder)
        assert card["num_read"] == total
        assert card["num_rejected"] == {NOT_DRAWN: 4}
        for name, size in start.benchmarks.items():
            assert len(read_problems(folder / f"{name}.jsonl")) == size == 2
    # The same problems come again, whatever was drawn between.
    other = RunFolder(project / "again")
    inputs = {name: stage.folder(runs_dir()) for name, stage in start.world.inputs.items()}
    build(other, inputs, **start.world.params)
    assert (other.path / "train.jsonl").read_bytes() == (folder / "train.jsonl").read_bytes()


def test_problems_that_cannot_be_judged_have_a_reason(tmp_path):
    from klearlib.data.problems import write_problems
    from klearlib.records import Problem, TestCase

    (tmp_path / "problems").mkdir()
    problems = [Problem(str(n), f"{n}?", answer="1") for n in range(4)]
    problems += [Problem("open", "?"), Problem("code", "?", tests=(TestCase("1", stdin=""),))]
    write_problems(problems, tmp_path / "problems" / "problems.jsonl")
    inputs = {"problems": tmp_path / "problems", "benchmarks": tmp_path}
    how = {"seed": 0, "domain": "math", "num_validation": 2, "benchmarks": []}
    how |= {"ngram_words": 9}
    build(RunFolder(tmp_path / "world"), inputs, num_train_problems=9, **how)
    rows = rows_of(tmp_path / "world" / "rejects.jsonl")
    reasons = {row["id"]: row["reason"] for row in rows}
    assert reasons == {"open": NOTHING_TO_JUDGE_BY, "code": OTHER_DOMAIN}
    card = card_of(tmp_path / "world")
    assert (card["num_read"], card["num_kept"], card["num_validation"]) == (6, 2, 2)
    with pytest.raises(KlearError, match="4 problems can be judged, 4 of them are held out"):
        how["num_validation"] = 4
        build(RunFolder(tmp_path / "world"), inputs, num_train_problems=9, **how)


def test_a_benchmark_in_the_training_data_is_removed(project):
    rows = rows_of(project / "data" / "klear_math.jsonl")
    rows[0]["prompt"][0]["content"] = "Compute 1 times 1."  # of aime_2025
    write_rows(project / "data" / "klear_math.jsonl", rows)
    curated = origin("tiny").start("math").world.inputs["problems"]
    card = card_of(run_here(curated))
    removed = {row["stage"]: row["num_removed"] for row in card["funnel"]}
    assert removed["overlap"] == 1 and card["num_kept"] == 19


def test_each_domain_learns_its_own_part_of_a_mixed_data_set(project):
    sft = origin("tiny").start("math").sft
    selections = sft.inputs["examples"].inputs.values()
    for stage, domain, left_out in zip(selections, ("math", "code"), (4, 4), strict=True):
        card = card_of(run_here(stage.inputs["responses"]))["learnable"]
        assert card["domain"] == domain and not card["held_out"]
        assert sum(card["other_domain"]["acereason_sft"].values()) == left_out
        assert card["num_read"] == card["num_kept"] + left_out


def test_missing_assets_say_how_to_get_them(project):
    assert missing_assets(load("tiny", "real")) == []
    named = {"models/tiny": SHAPE}
    change(project, model="Org/Base", shapes=named, maths_problems={"klear_math": {}})
    (project / "data" / "ocr.jsonl").unlink()
    found = {each.name: each for each in missing_assets(load("tiny", "real"))}
    assert set(found) == {"Org/Base", "ocr.jsonl", "Kwai-Klear/KlearReasoner-MathSub-30K"}
    assert found["Org/Base"].fix == "hf download Org/Base"
    assert found["ocr.jsonl"].fix == "correct its path in real.yaml"
    maths = found["Kwai-Klear/KlearReasoner-MathSub-30K"]
    assert maths.fix == ("hf download Kwai-Klear/KlearReasoner-MathSub-30K --repo-type dataset")
    assert maths.looked.startswith(str(project / "hub"))


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("assets", "torch"),
        # A new parameter of any notebook would train every model anew.
        ("data, model, world", "klearlib.params"),
    ],
)
def test_what_a_module_never_imports(modules, absent):
    code = f"import sys; from klearlib.real import {modules}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LONG = "Every task of this contest is given on the first line as one number. "


def rewrite(path, change) -> None:
    rows = rows_of(path)
    for number, row in enumerate(rows):
        change(number, row)
    write_rows(path, rows)


def test_no_validation_problem_of_either_domain_is_an_example(project):
    """The pool holds the very questions of both sources of SFT."""

    def maths(number, row):
        if number < 8:
            row["prompt"][0]["content"] = f"What is 2 + {number}?"
            row["reward_model"]["ground_truth"] = str(number + 2)

    def code(number, row):
        if number < 4:
            row["prompt"][0]["content"] = f"Print n plus {number}."

    rewrite(project / "data" / "klear_math.jsonl", maths)
    rewrite(project / "data" / "klear_code.jsonl", code)
    start = origin("tiny")
    selections = start.start("math").sft.inputs["examples"].inputs.values()
    num_met = 0
    for domain, selection in zip(("math", "code"), selections, strict=True):
        world = run_here(start.start(domain).world)
        held_out = {problem.prompt for problem in read_problems(world / VALIDATION)}
        examples = run_here(selection) / "examples.parquet"
        assert not held_out & {row["prompt"] for row in read_rows(examples)}
        # None is among those that a smaller or larger choice could take.
        learnable = selection.inputs["responses"]
        responses = read_rows(run_here(learnable) / "responses.parquet", columns=["prompt"])
        assert not held_out & {row["prompt"] for row in responses}
        card = card_of(run_here(learnable))["learnable"]
        num_met += sum(card["held_out"].values())
        others = sum(sum(kinds.values()) for kinds in card["other_domain"].values())
        assert card["num_read"] == card["num_kept"] + others + sum(card["held_out"].values())
    assert num_met, "the case never came up"


def test_no_training_problem_is_a_variant_of_a_validation_problem(project):
    twins = "Ann has {} red boxes with a sweet in each of them and eats three. How many are left?"

    def maths(number, row):
        row["prompt"][0]["content"] = f"{number // 2} or {number // 2 + 70}? " + twins.format(
            " ".join(f"w{number // 2}x{k}" for k in range(9)) + f" {number}"
        )

    rewrite(project / "data" / "klear_math.jsonl", maths)
    world = run_here(origin("tiny").start("math").world)
    held_out, train = (
        {problem.prompt.partition(" or ")[0] for problem in read_problems(world / f"{name}.jsonl")}
        for name in ("validation", "train")
    )
    assert held_out and not held_out & train
    card = card_of(world)
    assert card["num_rejected"][NEAR_HELD_OUT] > 0
    counts = card["num_kept"] + card["num_validation"] + sum(card["num_rejected"].values())
    assert card["num_read"] == counts == 20


def test_what_several_validation_problems_say_removes_nothing():
    problems = [Problem(str(n), LONG + f"Do {n} of it.", "1") for n in range(3)]
    prompts = [LONG + "Something else.", LONG + "do 1 OF it", "What is 2 + 2?"]
    rule = {"ngram_words": 9}
    assert list(near_held_out(prompts, problems, **rule)) == [False, True, False]
