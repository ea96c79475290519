"""The joint world: both worlds' benchmarks, longer problems held out, right text of both."""

from random import Random

import pytest
from code_reader import output_of
from made_worlds import JOINT, build, printed, rows
from prompt_reader import answer_of, step_holds

from klearlib.curation.overlap import OverlapIndex
from klearlib.data.problems import read_problems
from klearlib.data.tables import read_samples
from klearlib.errors import ParameterError
from klearlib.miniature import joint
from klearlib.miniature.problems import draw, held_out
from klearlib.miniature.sources import TEMPLATES
from klearlib.policy.load import chat_prompt
from klearlib.run.seeding import derive_seed
from klearlib.verify.answers import verify_answers


@pytest.fixture(scope="module")
def built(worlds):
    return worlds("joint")


@pytest.fixture(scope="module")
def inputs(worlds):
    return worlds.inputs_of("joint")


def test_benchmarks_of_both_worlds_are_as_they_are_there(built, inputs):
    assert joint.BENCHMARKS == ("math_a", "math_b", "math_c", "code_a", "code_b")
    for name in ("math_a", "math_b", "code_a", "code_b", "code_decide"):
        source = inputs["maths" if name.startswith("math") else "code"]
        assert (built / f"{name}.jsonl").read_bytes() == (source / f"{name}.jsonl").read_bytes()


def test_the_new_benchmark_is_longer_held_out_and_right(built):
    found = read_problems(built / "math_c.jsonl", expected_size=30)
    assert len({problem.prompt for problem in found}) == 30
    assert all(problem.answer == str(answer_of(problem.prompt)) for problem in found)
    # A family whose steps come in pairs rounds an odd difficulty down.
    steps = [problem.difficulty for problem in found]
    assert min(steps) >= 4 and max(steps) in (8, 9) and sum(step > 4 for step in steps) > 20
    assert {problem.family for problem in found} == {"chain", "recurrence", "polynomial"}


def test_validation_is_half_of_each_world_with_ids_of_its_own(built, inputs):
    found = read_problems(built / "validation.jsonl", expected_size=8)
    prompts = [problem.prompt for problem in found]
    for name, part in (("maths", prompts[:4]), ("code", prompts[4:])):
        source = read_problems(inputs[name] / "validation.jsonl")
        assert part == [problem.prompt for problem in source[:4]]
    assert [p.id for p in found[:2]] == ["maths-validation-0", "maths-validation-1"]
    assert found[4].tests and not found[0].tests


def test_corpus_is_right_and_of_both_domains_in_turn(built, tiny_tokenizer):
    corpus = rows(built / "corpus.jsonl")
    short = [row for row in corpus if "The answer is" in row["text"]]
    long = [row for row in corpus if "boxed" in row["text"]]
    programs = [row for row in corpus if "print(n)" in row["text"]]
    assert [len(short), len(long), len(programs), len(corpus)] == [30, 12, 60, 102]
    for row in short:
        *lines, last = row["text"].split("\n")
        assert last == f"The answer is {answer_of(row['given'].removesuffix(chr(10)))}."
        assert all(step_holds(line, 5) for line in lines) and len(lines) <= 4
    for row in long:
        prompt = row["given"].split("user\n")[1].split("<|im_end|>")[0]
        assert row["given"] == chat_prompt(tiny_tokenizer, prompt)[0]
        lines = row["text"].split("\n")[1:-2]
        assert all(step_holds(line, 5) for line in lines) and 4 <= len(lines) <= 9
        end = f"</think>\n\\boxed{{{answer_of(prompt)}}}"
        assert row["text"].startswith("<think>\n") and row["text"].endswith(end)
    for row in programs[:12]:
        prompt, text = row["given"].removesuffix("\n"), row["text"]
        stdin = "ab" if prompt.startswith("n is") else "17"
        assert printed(text[text.index("n = ") :], stdin) == output_of(prompt, stdin)
    # While they last.
    assert ["print(n)" in row["text"] for row in corpus[:84]] == [False, True] * 42


def test_nothing_that_is_trained_on_shares_a_9_gram_with_a_benchmark(built):
    index = OverlapIndex(
        {
            name: [(p.id, p.prompt) for p in read_problems(built / f"{name}.jsonl")]
            for name in joint.BENCHMARKS
        },
        templates=TEMPLATES,
    )
    texts = [row["given"] for row in rows(built / "corpus.jsonl")]
    texts += [row["prompt"] for row in rows(built / "sft.jsonl")]
    texts += [sample.prompt for sample in read_samples(built / "examples.parquet")]
    assert not any(index.removals(texts))
    # Of the same draws without the search some do.
    drafts = draw(
        Random(derive_seed(JOINT["seed"], "joint_world", "maths turns")),
        400,
        difficulties=range(2, JOINT["max_difficulty"] + 1),
        modulus=JOINT["modulus"],
        held_out_part=False,
        seen=None,
    )
    assert any(index.removals([draft.prompt for draft in drafts]))


def test_long_examples_are_right_and_not_held_out(built):
    samples = list(read_samples(built / "examples.parquet"))
    assert len({sample.problem_id for sample in samples}) == len(samples) == 10
    for sample in samples:
        assert not held_out(sample.prompt) and sample.source == "long_maths"
        assert sample.response.endswith(f"\\boxed{{{answer_of(sample.prompt)}}}")
    assert max(sample.response.count("=") for sample in samples) > 4


def test_turns_for_the_tokenizer_are_of_both_kinds_and_right(built):
    turns = rows(built / "sft.jsonl")
    maths = [turn for turn in turns if "boxed" in turn["response"]]
    assert 0 < len(maths) < len(turns)
    verdicts = verify_answers(
        [turn["response"] for turn in maths[:40]],
        [str(answer_of(turn["prompt"])) for turn in maths[:40]],
    )
    assert all(verdict.correct for verdict in verdicts)
    assert all("```python" in turn["response"] for turn in turns if turn not in maths)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"long_max_difficulty": 4}, "above max_difficulty 4"),
        ({"num_validation": 14}, "at most 12, twice what the maths world has"),
    ],
)
def test_bad_parameters(inputs, tmp_path, changes, words):
    with pytest.raises(ParameterError, match=words):
        build("joint", tmp_path, inputs, **changes)
