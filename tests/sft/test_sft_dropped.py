"""Examples that cannot be trained on whole are left out and counted."""

import pytest
from sft_runs import EXAMPLES, lines, run

from klearlib.errors import KlearError
from klearlib.sft import train
from klearlib.sft.batches import Example

LONG = Example(ids=(1,) * 257, num_prompt=1)


@pytest.mark.parametrize(
    ("examples", "words"), [([], "there are none"), ([LONG] * 2, "2 of more than 256 tokens")]
)
def test_nothing_to_learn_from_is_refused(new_policy, tiny_tokenizer, tmp_path, examples, words):
    with pytest.raises(KlearError, match=f"no example to train on: {words}"):
        run(tmp_path, new_policy(0), tiny_tokenizer, examples=examples)


def test_dropped_examples_are_counted_and_the_others_are_whole(
    new_policy, tiny_tokenizer, tmp_path, monkeypatch
):
    seen = set()
    original = train.batch_gradient

    def spy(model, batch, **how):
        seen.update(tuple(example.ids) for example in batch)
        return original(model, batch, **how)

    monkeypatch.setattr(train, "batch_gradient", spy)
    how = {"num_steps": None, "num_epochs": 1}
    run(tmp_path / "a", new_policy(6), tiny_tokenizer, pack_tokens=7, **how)
    assert seen == {tuple(example.ids) for example in EXAMPLES if len(example.ids) <= 7}
    assert [line["sft/dropped_examples"] for line in lines(tmp_path / "a")] == [2, 2]
    assert sum(line["sft/num_examples"] for line in lines(tmp_path / "a")) == 8
    assert "left out 2 examples" in (tmp_path / "a" / "log.txt").read_text()
    run(tmp_path / "b", new_policy(6), tiny_tokenizer, examples=[*EXAMPLES, LONG], **how)
    assert {line["sft/dropped_examples"] for line in lines(tmp_path / "b")} == {1}
    run(tmp_path / "c", new_policy(6), tiny_tokenizer, **how)
    assert {line["sft/dropped_examples"] for line in lines(tmp_path / "c")} == {0}


def with_token(token: int, index: int) -> Example:
    """The second example with a token of its own at a place of its response, counted from its
    end."""
    ids = list(EXAMPLES[1].ids)
    ids[index] = token
    return Example(ids, EXAMPLES[1].num_prompt)


@pytest.mark.parametrize(
    ("name", "index"), [("<|im_end|>", -2), ("<|im_end|>", -4), ("<|im_start|>", -2)]
)
def test_a_response_with_a_control_token_within_is_dropped(
    new_policy, tiny_tokenizer, tmp_path, name, index
):
    broken = with_token(tiny_tokenizer.convert_tokens_to_ids(name), index)
    examples = [*EXAMPLES[:3], broken, broken]
    how = {"num_steps": None, "num_epochs": 1}
    run(tmp_path / "b", new_policy(6), tiny_tokenizer, examples=examples, **how)
    (line,) = lines(tmp_path / "b")
    assert line["sft/dropped_examples"] == 2 and line["sft/num_examples"] == 3
    assert "left out 2 examples with a control token" in (tmp_path / "b" / "log.txt").read_text()
    with pytest.raises(KlearError, match="no example to train on"):
        run(tmp_path / "c", new_policy(6), tiny_tokenizer, examples=[broken], **how)
    run(tmp_path / "d", new_policy(6), tiny_tokenizer, examples=[*examples, LONG], **how)
    assert lines(tmp_path / "d")[0]["sft/dropped_examples"] == 3


def test_end_token_at_the_end_and_control_tokens_of_the_prompt_stay(
    new_policy, tiny_tokenizer, tmp_path
):
    end = tiny_tokenizer.eos_token_id
    examples = [with_token(end, -1), with_token(end, 0), with_token(end, 1)]
    run(tmp_path, new_policy(6), tiny_tokenizer, examples=examples, num_steps=2)
    assert lines(tmp_path)[0]["sft/dropped_examples"] == 0
