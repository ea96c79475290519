"""What stands beside the scores of RL in every notebook that trains by it."""

from dataclasses import replace

import fake_runs
import numpy as np
import pytest
from fake_runs import HOW, NUM_STEPS, again, finish, finish_all, record, section

from klearlib.evaluate.counts import LOOKS, Evaluation, looked_at, read_evaluations, scored
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.nb07_soft_reward import SoftReward, SoftRewardParams
from klearlib.suite.status import describe_status

PARAMS = ClippingParams(seeds=[0, 1], code=False, **HOW)
ENDS = dict.fromkeys(PARAMS.rules, 0.5)


def looks(name: str, *, right: int, truncated: int, tokens: int, places: dict[str, int]):
    """A record of 30 problems x 8 responses: the first columns are right, the last ones truncated;
    places: of the right ones, column by column."""
    made = record(name, right, turned=99)
    found, cut = np.full(made.correct.shape, "", dtype="U6"), np.zeros_like(made.correct)
    found[:, :right] = np.repeat(list(places), list(places.values()))
    cut[:, 8 - truncated :] = True
    reason = np.where(cut, "truncated", made.reason).astype("U14")
    reason[:, right] = "not_worked_out"
    tokens = np.full(made.correct.shape, tokens)
    return replace(made, truncated=cut, num_tokens=tokens, reason=reason, found=found)


def test_the_looks_by_hand():
    a = looks("a", right=4, truncated=2, tokens=10, places={"boxed": 3, "last": 1})
    b = looks("b", right=2, truncated=0, tokens=20, places={"marked": 2})
    assert looked_at([Evaluation.of_record(each) for each in (a, b)]) == pytest.approx(
        {
            "score": 6 / 16,
            "truncated": 2 / 16,
            "tokens": 15,
            "not_worked_out": 2 / 16,
            "right_boxed": 3 / 6,
            "right_marked": 2 / 6,
            "right_last": 1 / 6,
        }
    )
    wrong = looked_at([Evaluation.of_record(looks("a", right=0, truncated=0, tokens=1, places={}))])
    assert wrong["score"] == 0 and np.isnan([wrong[f"right_{p}"] for p in ("boxed", "last")]).all()


def test_the_table_has_both_ends_of_each_arm_over_its_benchmarks(project, monkeypatch):
    e = Clipping(PARAMS)

    def made(name, right, *, turned):
        places = {"boxed": right - 1, "last": 1}
        return looks(name, right=right, truncated=right // 2, tokens=10 + turned, places=places)

    monkeypatch.setattr(fake_runs, "record", made)
    finish_all(e, ENDS)
    table = again(e).table("looked_at")
    assert list(table.columns) == ["arm", "evaluation", "seeds", *LOOKS]
    assert len(table) == 2 * len(PARAMS.rules)
    mine = table[table["arm"] == "GPPO"].set_index("evaluation")
    assert list(mine["seeds"]) == [2, 2]
    # The two seeds turn by 3 and 4.
    values = {"first": [2 / 8, 1 / 8, 13.5, 1 / 8, 1 / 2, 0, 1 / 2]}
    values["last"] = [4 / 8, 2 / 8, 13.5, 1 / 8, 3 / 4, 0, 1 / 4]
    for word, wanted in values.items():
        assert list(mine.loc[word, list(LOOKS)]) == wanted
    assert "looked_at" in [each["name"] for each in section(e)["tables"]]


def test_the_validation_set_stands_in_where_it_is_alone(project):
    e = Clipping(PARAMS)
    stage = e.arms["gppo", 0]
    finish(stage, end={"validation": 0.75})
    (first, last) = again(e).table("looked_at").itertuples()
    assert (first.arm, first.seeds, last.evaluation) == ("GPPO", 1, "last")
    assert last.score == pytest.approx(0.75, abs=0.05)
    found = scored(read_evaluations(e.folder(stage)))
    assert {step: [each.problems[0] for each in mine] for step, mine in found.items()} == {
        0: ["validation-0"],
        10: ["validation-0"],
        20: ["validation-0"],
    }


def test_what_decides_is_not_looked_at_with_the_others(project):
    """It is not measured at the start, where the table begins."""
    e = Clipping(PARAMS)
    stage = e.arms["gppo", 0]
    finish(stage, end=0.5)
    found = scored(read_evaluations(e.folder(stage)))
    names = {each.problems[0].rpartition("-")[0] for mine in found.values() for each in mine}
    assert names == {"math_a", "math_b", "code_a", "code_b"}


def test_the_runs_on_code_stand_in_it_too(project):
    e = Clipping(replace(PARAMS, code=True, seeds=[0]))
    finish(e.arms["gppo", 0], end=0.5)
    finish(e.code_arms["gppo", 0], end=0.5)
    assert list(again(e).table("looked_at")["arm"].unique()) == ["GPPO", "GPPO, code"]


def test_nothing_done_is_no_table(project):
    for e in (Clipping(PARAMS), SoftReward(SoftRewardParams(**HOW))):
        assert "looked_at" not in [each["name"] for each in section(e)["tables"]]


def rising(rule, seed, step):
    """Truncation rises in one run, with the score, and in another the score falls with it."""
    if (rule, seed) not in (("gppo", 1), ("cispo", 0)):
        return {}
    share = step / NUM_STEPS
    score = share if rule == "gppo" else 1 - share
    return {"rollout/truncated_rate": share, "rollout/correct_rate": score}


def test_truncation_that_rises_with_the_score_is_said_and_decides_nothing(project):
    e = Clipping(PARAMS)
    finish_all(e, ENDS)
    before = section(e)
    e = Clipping(replace(PARAMS, seeds=[0, 1], num_problems=16))
    finish_all(e, ENDS, rising)
    words = "from 12 % to 92 % of rollouts while the rate correct rose from 12 % to 92 %"
    found = section(e)
    said = [note for note in found["notes"] if "truncation rose" in note]
    assert len(said) == 1 and said[0].startswith(f"In GPPO, seed 1 truncation rose {words}")
    assert [v["verdict"] for v in found["verdicts"]] == [v["verdict"] for v in before["verdicts"]]
    assert not [note for note in before["notes"] if "truncation" in note]
    lines = describe_status("smoke").splitlines()
    (line,) = [line for line in lines if "truncation rose" in line]
    assert line.split()[0] == e.arms["gppo", 1].key and words in line
