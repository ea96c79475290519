"""Examples that cannot be trained on whole are left out and counted."""

import pytest
from sft_runs import EXAMPLES, lines, run

from klearlib.errors import KlearError
from klearlib.sft import train
from klearlib.sft.batches import Example, usable

LONG = Example(ids=(1,) * 257, num_prompt=1)


@pytest.mark.parametrize(
    ("examples", "words"), [([], "there are none"), ([LONG] * 2, "2 of more than 256 tokens")]
)
def test_nothing_to_learn_from_is_refused(new_policy, tiny_tokenizer, tmp_path, examples, words):
    with pytest.raises(KlearError, match=f"no example to train on: {words}"):
        run(tmp_path, new_policy(0), tiny_tokenizer, examples=examples)


def with_token(token: int, index: int) -> Example:
    """The second example, of 2 + 4 tokens, with another one at a place."""
    ids = list(EXAMPLES[1].ids)
    ids[index] = token
    return Example(ids, EXAMPLES[1].num_prompt)


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
    broken = with_token(tiny_tokenizer.eos_token_id, -2)
    examples = [*EXAMPLES[:3], broken, LONG, broken]
    run(tmp_path / "b", new_policy(6), tiny_tokenizer, examples=examples, **how)
    (line,) = lines(tmp_path / "b")
    assert (line["sft/dropped_examples"], line["sft/num_examples"]) == (3, 3)
    assert "left out 2 examples with a control token" in (tmp_path / "b" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("name", "index", "dropped"),
    [
        *(("<|im_end|>", -2, 1), ("<|im_end|>", -4, 1), ("<|im_start|>", -2, 1)),
        *(("<|im_end|>", -1, 0), ("<|im_end|>", 0, 0), ("<|im_end|>", 1, 0)),
    ],
)
def test_a_control_token_before_the_last_of_a_response_drops_it(
    tiny_tokenizer, name, index, dropped
):
    example = with_token(tiny_tokenizer.convert_tokens_to_ids(name), index)
    kept, left_out = usable([EXAMPLES[0], example], tiny_tokenizer, max_tokens=256)
    assert kept == [EXAMPLES[0], example][: 2 - dropped] and left_out.total() == dropped
