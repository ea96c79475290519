"""`klear evaluate` as a user calls it: scores with a whole denominator, or one line that says why
not."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from klearlib import cli
from klearlib.data.problems import read_problems, write_problems
from klearlib.evaluate import command, judging
from klearlib.evaluate.arguments import OF_A_MODEL, chosen_preset
from klearlib.evaluate.record_files import UNKNOWN_TOKENS, load_record
from klearlib.evaluate.scores import avg_at_n, pass_at_k, problem_interval, sampling_interval
from klearlib.policy import engines
from klearlib.records import Problem

PROBLEMS = [Problem(f"p-{i}", f"What is {i} + 1?", str(i + 1)) for i in range(3)]
# Rows are problems, columns responses: 4 of 9 are correct.
ANSWERS = [["1", "1", "2"], ["2", "5", "6"], ["7", "3", "no idea"]]
THOUGHT = "<think>Hm.</think>"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def judged(tmp_path):
    """The arguments that score a file of 9 responses, one of which a budget cut off."""
    write_problems(PROBLEMS, tmp_path / "own.jsonl")
    rows = [
        {
            "problem_id": problem.id,
            "response": f"{THOUGHT}\\boxed{{{answer}}}" if len(answer) == 1 else THOUGHT + answer,
            "truncated": len(answer) > 1,
            "num_tokens": 10 * len(answer),
        }
        for problem, answers in zip(PROBLEMS, ANSWERS, strict=True)
        for answer in answers
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    return ["evaluate", "--responses", "r.jsonl", "--benchmark", "own.jsonl", "--out", "out"]


def scores_of(folder):
    return json.loads((folder / "scores.json").read_text())


def failure(capsys, arguments, code=1):
    assert cli.main(arguments) == code
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("klear: ") or code == 2
    return err


def test_scores_of_a_file(judged, tmp_path, capsys):
    assert cli.main([*judged, "--n", "3"]) == 0
    correct = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]], dtype=bool)
    scores = scores_of(tmp_path / "out")
    assert scores["avg_at_n"] == avg_at_n(correct) == pytest.approx(4 / 9)
    assert scores["sampling_interval"] == list(sampling_interval(correct))
    assert scores["problem_interval"] == list(problem_interval(correct))
    assert scores["pass_at_k"] == {str(k): pass_at_k(correct, k) for k in (1, 2, 3)}
    assert scores["problems"] == {"p-0": 2 / 3, "p-1": 1 / 3, "p-2": 1 / 3}
    assert (scores["num_problems"], scores["num_responses"]) == (3, 3)
    assert (scores["truncated"], scores["not_judged"]) == (1, 0)
    assert scores["mean_tokens"] == pytest.approx((8 * 10 + 70) / 9)
    assert scores["reasons"]["wrong"] == 4 and scores["reasons"]["truncated"] == 1
    assert scores["found"] == {"boxed": 4, "marked": 0, "last": 0}
    assert scores["sampling"]["responses"] == "r.jsonl" and scores["sampling"]["num_responses"] == 3
    record = load_record(tmp_path / "out" / "record.npz")
    assert np.array_equal(record.correct, correct) and record.sampling == scores["sampling"]
    assert record.problem_ids == ("p-0", "p-1", "p-2")
    out = capsys.readouterr().out
    assert "own: 3 problems" in out and "avg@3" in out and "44.4" in out
    low, high = (100 * end for end in sampling_interval(correct))
    assert f"{low:.1f} to {high:.1f} over other responses" in out
    assert "1 of 9 responses, judged wrong" in out and "written to out" in out


class Killed(BaseException):
    pass


def bare(rows):
    return [{key: row[key] for key in ("problem_id", "response")} for row in rows]


def all_the_same(rows):
    return [row | {"response": THOUGHT, "truncated": True} for row in rows]


def beyond_the_judge(rows):
    return [rows[0] | {"response": THOUGHT + "\\boxed{" + "1" * 3000 + "}"}, *rows[1:]]


@pytest.mark.parametrize(
    ("changed", "scores", "words"),
    [
        (bare, {"truncated": None, "mean_tokens": None, "avg_at_n": 4 / 9}, [
            "not known, judged as text"]),
        (all_the_same, {"truncated": 9}, ["raise --max-new-tokens"]),
        # What the judge cannot decide counts as wrong.
        (beyond_the_judge, {"not_judged": 1, "avg_at_n": 3 / 9}, [
            "1 of 9 responses, scored as wrong"]),
    ],
)  # fmt: skip
def test_what_a_file_says_and_does_not_is_said(judged, tmp_path, capsys, changed, scores, words):
    write_rows(tmp_path / "r.jsonl", changed(rows_of(tmp_path / "r.jsonl")))
    assert cli.main(judged) == 0
    found = scores_of(tmp_path / "out")
    assert {name: found[name] for name in scores} == pytest.approx(scores)
    out = capsys.readouterr().out
    assert all(text in out for text in words)
    unknown = (load_record(tmp_path / "out" / "record.npz").num_tokens == UNKNOWN_TOKENS).all()
    assert unknown == (changed is bare)


def test_a_folder_holds_one_evaluation(judged, tmp_path, capsys):
    assert cli.main(judged) == 0
    before, responses = files(tmp_path / "out"), tmp_path / "r.jsonl"
    for more in (["--think-tags", "optional"], ["--truncated", "as_text"]):
        words = f"holds another evaluation ({more[0][2:].replace('-', '_')} differ)"
        assert words in failure(capsys, [*judged, *more])
    content = responses.read_text()
    responses.write_text(content.replace("num_tokens", "more_tokens"))
    assert "holds another evaluation (responses_sha256 differ)" in failure(capsys, judged)
    responses.write_text(content)
    problems = [replace(problem, answer="1") for problem in PROBLEMS]
    write_problems(problems, tmp_path / "own.jsonl")
    assert "holds another evaluation (problems_sha256 differ)" in failure(capsys, judged)
    assert files(tmp_path / "out") == before


def test_think_tags_are_needed_unless_told_otherwise(judged, tmp_path, capsys):
    rows = rows_of(tmp_path / "r.jsonl")
    for row in rows:
        row["response"] = row["response"].removeprefix("<think>")
    write_rows(tmp_path / "r.jsonl", rows)
    assert cli.main(judged) == 0
    assert scores_of(tmp_path / "out")["reasons"]["bad_format"] == 8  # one is truncated
    assert "--think-tags optional" in capsys.readouterr().out
    assert cli.main([*judged, "--think-tags", "optional", "--out", "out2"]) == 0
    scores = scores_of(tmp_path / "out2")
    assert scores["avg_at_n"] == pytest.approx(4 / 9)
    assert scores["sampling"]["think_tags"] == "optional"
    assert "--think-tags" not in capsys.readouterr().out
    # A template that opens the tag in the prompt has written it.
    write_rows(tmp_path / "r.jsonl", [row | {"prompt": "?<think>\n"} for row in rows])
    assert cli.main([*judged, "--out", "out3"]) == 0
    assert scores_of(tmp_path / "out3")["avg_at_n"] == pytest.approx(4 / 9)


RELEASED = ["--preset", "released"]


@pytest.mark.parametrize(
    ("more", "form", "truncated"),
    [
        (["--answer-form", "equivalent"], "equivalent", "wrong"),
        (["--truncated", "as_text"], "written", "as_text"),
        ([*RELEASED, "--truncated", "wrong"], "equivalent", "wrong"),
    ],
)
def test_the_rule_reaches_the_judge_and_the_record(
    judged, tmp_path, monkeypatch, more, form, truncated
):
    real, asked = judging.judge_responses, []

    def judge(problems, groups, **how):
        asked.append((how["answer_form"], how["truncated"]))
        return real(problems, groups, **how)

    monkeypatch.setattr(judging, "judge_responses", judge)
    assert cli.main([*judged, *more]) == 0
    assert asked == [(form, truncated)]
    sampling = load_record(tmp_path / "out" / "record.npz").sampling
    assert (sampling["answer_form"], sampling["truncated"]) == (form, truncated)


def test_judging_a_file_needs_no_torch(judged, tmp_path):
    script = (
        "import sys; from klearlib import cli\n"
        f"code = cli.main({judged!r})\n"
        "print('loaded', {'torch', 'transformers', 'pandas'} & set(sys.modules), code)"
    )
    how = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 60}
    done = subprocess.run([sys.executable, "-c", script], **how)
    assert done.stdout.endswith("loaded set() 0\n"), done.stderr


OF_NO_MODEL = {"--engine": "vllm", "--precision": "bf16", "--gpu-memory-share": "0.5"}


@pytest.mark.parametrize(
    ("more", "words", "code"),
    [
        (["--n", "4"], "has 3 responses to 'p-0' and must have 4", 1),
        (["--n", "0"], "--n: must be a number from 1 to 65536, got 0", 2),
        (["--test-timeout-s", "1e300"], "--test-timeout-s: must be a number from 0.001 to 3600", 2),
        (["--test-memory-mb", "1"], "--test-memory-mb: must be a number from 16", 2),
        (["--benchmark", "aime23"], "no benchmark 'aime23'; did you mean 'aime2", 2),
        (["--model", "m"], "not allowed with argument --responses", 2),
        (["--data", "none.jsonl"], "no problem file at none.jsonl", 1),
        (["--responses", "less.jsonl"], "has 0 responses to 'p-0' and must have 3", 1),
        (["--out", "own.jsonl"], "cannot write own.jsonl", 1),
        *(([flag, OF_NO_MODEL.get(flag, "1")], f"{flag} says how a model is asked", 2)
          for flag in OF_A_MODEL),
    ],
)  # fmt: skip
def test_bad_calls_are_one_line_and_write_nothing(judged, capsys, tmp_path, more, words, code):
    write_rows(tmp_path / "less.jsonl", rows_of(tmp_path / "r.jsonl")[3:])
    before = (tmp_path / "own.jsonl").read_bytes()
    assert words in failure(capsys, [*judged, *more], code)
    assert not (tmp_path / "out").exists() and (tmp_path / "own.jsonl").read_bytes() == before


def test_presets_are_the_papers_and_the_released_codes():
    """docs/deviations.md, D12."""

    def chosen(*more):
        call = ["evaluate", "--model", "m", "--benchmark", "aime24", "--n", "2", *more]
        return chosen_preset(cli._parser().parse_args(call))

    paper, released = chosen(), chosen("--preset", "released")
    assert (paper.temperature, paper.top_p, paper.top_k) == (0.6, 0.95, 0)
    assert (paper.repetition_penalty, paper.yarn_factor) == (1.0, None)
    assert (released.temperature, released.top_p, released.top_k) == (0.6, 0.95, 20)
    assert (released.repetition_penalty, released.yarn_factor) == (1.05, 2.5)
    assert (paper.budget, released.budget) == (2**15, 2**16)
    assert (paper.answer_form, paper.truncated) == ("written", "wrong")
    assert (released.answer_form, released.truncated) == ("equivalent", "as_text")
    changed = chosen("--preset", "released", "--top-k", "0", "--yarn", "1")
    assert (changed.top_k, changed.top_p, changed.yarn_factor) == (0, 0.95, None)


@pytest.fixture(scope="module")
def model(tiny_stages):
    return str(tiny_stages.sft / "model")


@pytest.fixture
def asked(asked_once):
    return list(asked_once)


@pytest.fixture(scope="module")
def asked_once(model, tiny_stages):
    """The arguments that ask a model for 3 responses to each of 6 problems in 3 blocks."""
    data = str(tiny_stages.world / "validation.jsonl")
    how = ["--n", "3", "--max-new-tokens", "40", "--batch-rows", "8", "--seed", "5"]
    return ["evaluate", "--model", model, "--benchmark", "validation", "--data", data, *how]


@pytest.fixture(scope="module")
def whole(asked_once, tmp_path_factory):
    """A folder that holds the scores of `asked`. No test may change it."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    assert cli.main([*asked_once, "--out", str(folder)]) == 0
    return folder


def test_a_model_is_scored_and_its_responses_score_the_same(whole, tiny_stages, tmp_path):
    scores = scores_of(whole)
    names = ("evaluation.json", "record.npz", "responses.jsonl", "scores.json")
    assert tuple(files(whole)) == names
    assert scores["sampling"].items() >= {
        "temperature": 0.6, "top_p": 0.95, "top_k": 0, "max_tokens": 40, "seed": 5,
        "yarn_factor": None, "repetition_penalty": 1.0, "num_responses": 3,
        "engine": "transformers", "precision": "fp32", "batch_rows": 8,
    }.items()  # fmt: skip
    own, data = str(whole / "responses.jsonl"), str(tiny_stages.world / "validation.jsonl")
    again = ["--responses", own, "--benchmark", "validation", "--data", data, "--out", "again"]
    assert cli.main(["evaluate", *again]) == 0
    found = scores_of(tmp_path / "again")
    same = set(scores) - {"sampling"}
    assert {key: found[key] for key in same} == {key: scores[key] for key in same}
    first, second = (load_record(path / "record.npz") for path in (whole, tmp_path / "again"))
    assert np.array_equal(first.num_tokens, second.num_tokens)
    assert np.array_equal(first.truncated, second.truncated)


@pytest.mark.parametrize("num_before", [0, 1, 2, 3])
def test_killed_and_resumed_gives_the_unbroken_files(
    asked, whole, tmp_path, monkeypatch, num_before
):
    original, sampled = engines.sample_groups, []

    def killing(model, tokenizer, problems, **how):
        if len(sampled) == num_before:
            raise Killed
        sampled.append(len(problems))
        return original(model, tokenizer, problems, **how)

    monkeypatch.setattr(engines, "sample_groups", killing)
    if num_before == 3:  # all are sampled: the kill comes while they are judged
        monkeypatch.setattr(command, "judge_all", lambda *_, **__: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        cli.main([*asked, "--out", "broken"])
    if num_before == 1:  # a kill in the middle of a write
        (tmp_path / "broken" / "blocks" / ".2-0.jsonl.9999999.1.tmp").write_text("{")
    assert not (tmp_path / "broken" / "scores.json").exists()
    assert sampled == [2, 2, 2][:num_before]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    sampled.clear()

    def counting(model, tokenizer, problems, **how):
        sampled.append(len(problems))
        return original(model, tokenizer, problems, **how)

    monkeypatch.setattr(engines, "sample_groups", counting)
    assert cli.main([*asked, "--out", "broken"]) == 0
    assert sampled == [2, 2, 2][num_before:]
    assert files(tmp_path / "broken") == files(whole)


def test_more_responses_than_rows_are_split_and_differ_in_either_precision(asked, tmp_path):
    split = [*asked, "--n", "5", "--batch-rows", "2", "--max-new-tokens", "20"]
    for precision in ("fp32", "bf16"):
        assert cli.main([*split, "--precision", precision, "--out", precision]) == 0
        assert scores_of(tmp_path / precision)["sampling"]["precision"] == precision
        rows = rows_of(tmp_path / precision / "responses.jsonl")
        assert [row["problem_id"] for row in rows] == [f"validation-{i // 5}" for i in range(30)]
        texts = [row["response"] for row in rows]
        first, later = ([texts[i + at : i + at + 2] for i in range(0, 30, 5)] for at in (0, 2))
        assert first != later, "each block needs draws of its own"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--seed", "6"], "holds another evaluation (seed differ)"),
        (RELEASED, "(answer_form, repetition_penalty, top_k, truncated, yarn_factor differ)"),
        (["--n", "2"], "(num_responses differ)"),
        (["--precision", "bf16", "--batch-rows", "4"], "(batch_rows, precision differ)"),
    ],
)
def test_settings_are_never_mixed_in_a_folder(asked, whole, capsys, more, words):
    before = files(whole)
    assert words in failure(capsys, [*asked, *more, "--out", str(whole)])
    assert files(whole) == before


def test_another_model_or_another_problem_at_the_same_path(asked, model, tmp_path, capsys):
    shutil.copytree(model, tmp_path / "m")
    place = asked.index("--data") + 1
    problems = read_problems(tmp_path / asked[place])
    write_problems(problems, tmp_path / "mine.jsonl")
    asked[asked.index("--model") + 1], asked[place] = "m", "mine.jsonl"
    assert cli.main([*asked, "--out", "one"]) == 0
    write_problems(problems[::-1], tmp_path / "mine.jsonl")
    assert "(problems_sha256 differ)" in failure(capsys, [*asked, "--out", "one"])
    write_problems(problems, tmp_path / "mine.jsonl")
    (tmp_path / "m" / "notes.txt").write_text("trained a little longer")
    assert "(weights differ)" in failure(capsys, [*asked, "--out", "one"])
    mine = ["--responses", "one/responses.jsonl", "--benchmark", "mine.jsonl", "--out", "one"]
    assert "holds another evaluation" in failure(capsys, ["evaluate", *mine])


@pytest.mark.parametrize(
    ("more", "words", "code"),
    [
        *(([flag, value], f"{flag}: must be a number from ", 2) for flag, value in (
            ("--top-p", "2"), ("--top-p", "nan"), ("--n", "2.5"), ("--seed", "-1"),
            ("--temperature", "101"), ("--yarn", "0.5"), ("--gpu-memory-share", "1"))),
        (["--yarn-original", "9"], "--yarn-original says what --yarn multiplies", 2),
        (["--temperature", "0"], "gives the same response each time: give --n 1", 2),
        (["--engine", "sglang"], "argument --engine: invalid choice", 2),
        (["--tensor-parallel", "2"], "tensor_parallel 2 needs engine vllm: set it to 1", 2),
        (["--max-new-tokens", "250"], "lower --max-new-tokens", 1),
        (["--model", "./none"], "no model folder at ./none", 1),
        (["--data", "none.jsonl"], "no problem file", 1),
    ],
)  # fmt: skip
def test_a_bad_call_of_a_model_leaves_nothing(asked, capsys, tmp_path, more, words, code):
    assert words in failure(capsys, [*asked, *more, "--out", "one"], code)
    assert not (tmp_path / "one").exists()


def test_a_model_needs_n(model, capsys):
    call = ["evaluate", "--model", model, "--benchmark", "aime24"]
    assert "--model needs --n" in failure(capsys, call, 2)
