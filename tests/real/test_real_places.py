"""Where models and data sets are: as the hub's own library says, in no key, and said before a
run."""

from __future__ import annotations

import json
import shutil

import pytest
from real_project import PROFILE, SHAPE, card_of, change, rows_of, run_here, write_model, write_rows

from klearlib.errors import MissingAsset, ParameterError
from klearlib.experiments.origins import origin
from klearlib.hub import has_weights, hub_folder
from klearlib.params import load
from klearlib.real.assets import missing_assets


def lines() -> list[str]:
    return [str(each) for each in missing_assets(load(PROFILE, "real"))]


def test_no_key_depends_on_the_place_of_the_hubs_cache(project, monkeypatch):
    change(
        project,
        maths_problems={"klear_math": {}},
        benchmarks={name: {"size": 2} for name in load(PROFILE, "real").benchmarks},
        reference="Org/Reference",
        shapes={"Org/Reference": SHAPE},
    )
    keys = []

    def keys_now():
        start = origin(PROFILE)
        return start.start("math").sft.key, start.stages["reference"].key

    for name in ("hub", "elsewhere"):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(project / name))
        for kind, repo in (
            ("model", "Org/Reference"),
            ("dataset", "Kwai-Klear/KlearReasoner-MathSub-30K"),
            ("dataset", "HuggingFaceH4/aime_2024"),
        ):
            keys.append(keys_now())
            write_rows(hub_folder(kind, repo) / "snapshots" / "abc" / "rows.jsonl", [{}])
        keys.append(keys_now())
    assert len(set(keys)) == 1 and len(keys) == 8


def test_a_data_set_of_the_hubs_cache_is_curated(project):
    change(project, maths_problems={"klear_math": {}})
    snapshot = hub_folder("dataset", "Kwai-Klear/KlearReasoner-MathSub-30K") / "snapshots" / "abc"
    (snapshot / ".cache").mkdir(parents=True)
    (snapshot / ".cache" / "part.json").write_text("{")
    shutil.move(project / "data" / "klear_math.jsonl", snapshot / "train_math_30K.jsonl")
    curated = origin(PROFILE).start("math").world.inputs["problems"]
    assert card_of(run_here(curated))["num_kept"] == 20
    linked = run_here(curated.inputs["data_klear_math"])
    assert card_of(linked)["snapshot"] == "abc" and card_of(linked)["num_files"] == 1
    (file,) = (path for path in (linked / "files").rglob("*") if path.is_file())
    assert file.is_symlink() and file.name == "train_math_30K.jsonl"


def test_a_model_without_all_of_its_weights_is_missing(project):
    change(project, reference="Org/Part", shapes={"Org/Part": SHAPE})
    snapshot = hub_folder("model", "Org/Part") / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text("{}")
    (line,) = lines()
    assert line.startswith("model Org/Part") and line.endswith("hf download Org/Part")
    write_model(snapshot)
    assert lines() == [] and has_weights(snapshot)
    weights = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    shutil.copy(snapshot / "model.safetensors", snapshot / weights["a"])
    assert len(lines()) == 1, "the second of two files is still to come"
    (snapshot / weights["b"]).touch()
    assert not has_weights(snapshot), "a file without a byte is none"
    index.write_text('{"weight_map": {}}')
    assert not has_weights(snapshot)
    index.unlink()
    shutil.rmtree(project / "models" / "tiny")
    (project / "models" / "tiny").mkdir()
    assert any("all weights in .safetensors" in each for each in lines())


def test_an_absent_template_and_a_mistyped_path_are_said_as_paths(project):
    change(project, chat_template="no/file.jinja", teacher_weak="models/typo")
    change(project, shapes={"models/typo": SHAPE})
    template, model = sorted(lines())
    assert template.startswith("chat template no/file.jinja is not at")
    assert str(project / "models" / "typo") in model and "hf download" not in model
    assert template.endswith(": correct its path in real.yaml")
    stage = origin(PROFILE).stages["teacher_weak"]
    with pytest.raises(MissingAsset, match="no model folder at"):
        run_here(stage)


def test_an_edited_template_makes_another_stage(project):
    (project / "chat.jinja").write_text("{{ messages }}")
    change(project, chat_template="chat.jinja")
    before = origin(PROFILE).stages["teacher_weak"].key
    (project / "chat.jinja").write_text("{{ messages }}!")
    assert origin(PROFILE).stages["teacher_weak"].key != before


def test_a_model_of_unknown_shape_is_refused(project):
    change(project, reference="Org/Unknown")
    with pytest.raises(ParameterError, match="shapes has no Org/Unknown, the reference: give"):
        load(PROFILE, "real")
    change(project, shapes={"Org/Unknown": SHAPE | {"num_kv_heads": 3}})
    with pytest.raises(ParameterError, match="num_kv_heads 3 must divide num_heads 2"):
        load(PROFILE, "real")


def test_a_mixed_row_of_a_problem_that_another_source_holds(project):
    """The response's source need not hold both domains for its problem to be of the other one."""
    path = project / "data" / "acereason.jsonl"
    rows = rows_of(path)
    rows[4]["input"] = "What is 2 + 3?"  # code here, mathematics in OpenR1-Math
    write_rows(path, rows)
    listed = load(PROFILE, "real").maths_sources
    change(project, maths_sources=dict(reversed(listed.items())))
    selection = next(iter(origin(PROFILE).start("math").sft.inputs["examples"].inputs.values()))
    card = card_of(run_here(selection.inputs["responses"]))["learnable"]
    left_out = sum(sum(kinds.values()) for kinds in card["other_domain"].values())
    assert card["num_read"] == card["num_kept"] + left_out + sum(card["held_out"].values())
