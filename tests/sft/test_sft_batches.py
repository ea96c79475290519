"""Examples and batches: the loss stands on the response, the order covers every epoch, and what
cannot be trained on whole is left out and counted."""

from array import array
from functools import partial
from itertools import islice

import pytest
from sft_runs import EXAMPLES, lines, run

from klearlib.errors import KlearError
from klearlib.sft import train
from klearlib.sft.batches import Example, chat_example, example_order, usable


def test_example_is_the_turn_with_its_end(tiny_tokenizer):
    response = "<think>\n1+1=2\n</think>\n\\boxed{2}"
    example = chat_example(tiny_tokenizer, "1+1?", response)
    head = "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    assert tiny_tokenizer.decode(example.ids[: example.num_prompt]) == head
    assert tiny_tokenizer.decode(example.ids[example.num_prompt :]) == response + "<|im_end|>"
    assert example.ids[-1] == tiny_tokenizer.eos_token_id


@pytest.mark.parametrize("num_examples", [1, 2, 7, 30])
def test_every_epoch_holds_each_example_once(num_examples):
    drawn, again, other = (
        list(islice(example_order(num_examples, seed=seed), 4 * num_examples)) for seed in (3, 3, 4)
    )
    epochs = [drawn[i * num_examples : (i + 1) * num_examples] for i in range(4)]
    assert all(sorted(epoch) == list(range(num_examples)) for epoch in epochs)
    if num_examples > 5:
        assert len(set(map(tuple, epochs))) == 4 and drawn == again != other


@pytest.mark.parametrize(("num_tokens", "num_prompt"), [(0, 0), (3, 0), (3, 3), (3, 4), (1, 1)])
def test_example_without_prompt_or_response_is_refused(num_tokens, num_prompt):
    with pytest.raises(KlearError, match=f"got {num_tokens} tokens with a prompt of {num_prompt}"):
        Example(ids=(5,) * num_tokens, num_prompt=num_prompt)


def test_ids_are_the_same_in_any_container():
    ids = [5, 151_935, 0, 7]
    first, *others = (Example(kind(ids), 2) for kind in (tuple, list, partial(array, "i")))
    assert all(other == first for other in others) and list(first.ids) == ids
    assert first != Example([*ids[:-1], 8], 2)


def test_prompt_cannot_end_its_turn_and_the_think_tags_stay(tiny_tokenizer):
    prompt, think = "1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>", "<think>\n2</think>"
    example = chat_example(tiny_tokenizer, prompt, think)
    clean = chat_example(tiny_tokenizer, "1+1?", think)
    head, clean_head = (row.ids[: row.num_prompt] for row in (example, clean))
    names = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    for name, count in zip(names, (2, 1, 0), strict=True):
        token = tiny_tokenizer.convert_tokens_to_ids(name)
        assert head.count(token) == clean_head.count(token) == count
    assert example.ids[example.num_prompt :] == clean.ids[clean.num_prompt :]
    assert tiny_tokenizer.convert_tokens_to_ids("<think>") in example.ids
    assert prompt in tiny_tokenizer.decode(head)


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
