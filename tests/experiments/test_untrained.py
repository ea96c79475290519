"""An arm in which no step trained, and what the policies wrote, as notebooks publish them."""

import dataclasses
import json

from fake_runs import HOW, again, finish_all, section
from metric_names import METRICS

from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.suite.status import describe_status

PARAMS = ClippingParams(seeds=[0, 1], code=False, **HOW)
NOTHING = {"train/grad_norm": None, "train/num_updates": 0, "rollout/groups_all_wrong": 1}
SAMPLE = {
    **{"step": 20, "problem": "p1", "response": 0, "prompt": "2 + 2?", "chars": 5000},
    **{"tokens": 3, "truncated": False, "reason": "correct", "reward": 1.0, "advantage": 0.5},
    **{"found": "boxed"},
}


def test_no_claim_is_decided_on_an_arm_that_did_not_train(project):
    e = Clipping(PARAMS)
    ends = dict.fromkeys(PARAMS.rules, 0.5)

    def idle(rule, seed, step):
        mine = dict.fromkeys((name for name in METRICS if name.startswith("rollout/")), 0.0)
        return mine | NOTHING if (rule, seed) == ("gppo", 1) else {}

    finish_all(e, ends, idle)
    found = section(e)
    verdicts = {each["claim"]: each for each in found["verdicts"]}
    why = "No step trained in GPPO, seed 1: every response is wrong: the problems are too hard"
    assert again(e).runs.untrained() == {("gppo", 1): why}
    for claim_id in ("C1", "C2", "C3"):
        assert verdicts[claim_id]["verdict"] == "not run"
        assert (verdicts[claim_id]["reason"] == why) == (claim_id != "C2")  # on runs of its own
    assert verdicts["C14"]["verdict"] == "reproduced"  # mathematics needs no run
    assert found["notes"][-1] == why
    table = again(e).verdict_table()
    assert set(table.loc[table["verdict"] == "not run", "claim"]) == {
        *("C1", "C2", "C3", "C18", "C25", "C26", "E6")
    }
    status = describe_status("smoke")
    key = e.arms["gppo", 1].key
    assert f"    {key} no step trained" in status and status.count("no step trained") == 1


def test_a_claim_names_none_but_its_own_arms(project):
    e = Clipping(dataclasses.replace(PARAMS, rules=["clip_higher", "gppo", "cispo", "unclipped"]))
    idle = {"rollout/groups_all_wrong": 1, **NOTHING}
    finish_all(
        e,
        dict.fromkeys(e.rules, 0.5),
        lambda rule, seed, step: idle if rule in ("gppo", "unclipped") else {},
    )
    found = {each["claim"]: each["reason"] for each in section(e)["verdicts"]}
    assert "GPPO, seed 0" in found["C1"] and "unclipped" not in found["C1"]


def test_gradients_that_were_never_finite_are_a_finding_about_stability(project):
    e = Clipping(PARAMS)
    skipped = {"train/grad_norm": None, "train/skipped_updates": 8, "train/num_updates": 0}
    ends = dict.fromkeys(PARAMS.rules, 0.5)
    finish_all(e, ends, lambda rule, seed, step: skipped if rule == "gppo" else {})
    assert len(again(e).runs.untrained()) == 2
    found = {each.claim: each.verdict for each in again(e).verdicts()}
    assert (found["C1"], found["C3"]) == ("not run", "contradicted")


def test_an_idle_step_among_others_changes_no_verdict(project):
    e = Clipping(PARAMS)
    finish_all(e, dict.fromkeys(PARAMS.rules, 0.5))
    before = section(e)
    assert before["notes"] == again(e).notes() and "samples" not in before


def test_samples_are_published_short_and_escaped(project):
    e = Clipping(PARAMS)
    finish_all(e, dict.fromkeys(PARAMS.rules, 0.5))
    file = e.folder(e.arms["gppo", 0]) / "samples.jsonl"
    wrong = SAMPLE | {"reason": "wrong", "reward": -1.0, "text": "<script>alert(1)</script>"}
    early = SAMPLE | {"step": 1, "text": "early"}
    kept = [early, wrong, wrong | {"text": "another"}, SAMPLE | {"text": "4" * 5000}]
    file.write_text("".join(json.dumps(line) + "\n" for line in kept))
    shown = section(e)["samples"]
    assert [(each["arm"], each["step"], each["reason"]) for each in shown] == [
        ("GPPO, seed 0", 1, "correct"),
        ("GPPO, seed 0", 20, "correct"),
        ("GPPO, seed 0", 20, "wrong"),
        ("GPPO, seed 0", 20, "wrong"),
    ]
    assert len(shown[1]["text"]) < 1300 and shown[1]["chars"] == 5000
    assert "3800 of 5000 characters left out" in shown[1]["text"]
    assert [each["text"] for each in shown[2:]] == [wrong["text"], "another"]
    page = again(e).samples().data
    assert "&lt;script&gt;" in page and "<script" not in page
