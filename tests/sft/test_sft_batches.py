"""Examples and batches: the loss stands on the response, the order covers every epoch."""

from itertools import islice

import pytest

from klearlib.sft.batches import chat_example, example_order, pad_rows, token_mask


def test_example_is_the_turn_with_its_end(tiny_tokenizer):
    response = "<think>\n1+1=2\n</think>\n\\boxed{2}"
    example = chat_example(tiny_tokenizer, "1+1?", response)
    head = "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    assert tiny_tokenizer.decode(example.ids[: example.num_prompt]) == head
    assert tiny_tokenizer.decode(example.ids[example.num_prompt :]) == response + "<|im_end|>"
    assert example.ids[-1] == tiny_tokenizer.eos_token_id


def test_mask_is_true_where_a_response_token_is_predicted():
    rows = [[5, 6, 7, 8, 9], [1, 2, 3], [4, 4, 4, 4, 4, 4, 4]]
    num_prompt = [2, 1, 6]
    ids = pad_rows(rows, pad_id=0)
    assert ids.tolist() == [[5, 6, 7, 8, 9, 0, 0], [1, 2, 3, 0, 0, 0, 0], [4] * 7]
    mask = token_mask(num_prompt, [len(row) for row in rows], ids.shape[1])
    assert mask.shape == (3, 6)
    for index, row in enumerate(rows):
        targets = ids[index, 1:][mask[index]].tolist()
        assert targets == row[num_prompt[index] :]
    # Position t predicts token t + 1: the prompt's last position predicts the first response token.
    assert mask[0].tolist() == [False, True, True, True, False, False]


def test_padding_that_is_also_a_word_of_the_response_keeps_its_loss():
    ids = pad_rows([[7, 0, 0], [7, 8, 8, 8]], pad_id=0)
    assert token_mask([1, 1], [3, 4], ids.shape[1])[0].tolist() == [True, True, False]


@pytest.mark.parametrize("num_examples", [1, 2, 7, 30])
def test_every_epoch_holds_each_example_once(num_examples):
    drawn = list(islice(example_order(num_examples, seed=3), 4 * num_examples))
    epochs = [drawn[i * num_examples : (i + 1) * num_examples] for i in range(4)]
    assert all(sorted(epoch) == list(range(num_examples)) for epoch in epochs)
    if num_examples > 5:
        assert len(set(map(tuple, epochs))) == 4


def test_order_depends_on_the_seed_and_on_nothing_else():
    first = list(islice(example_order(20, seed=1), 50))
    assert list(islice(example_order(20, seed=1), 50)) == first
    assert list(islice(example_order(20, seed=2), 50)) != first
