"""The step that a GPU captures, on a CPU: `Captured` runs what was captured again as it is."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from klearlib.policy.captured import CapturedDecoding
from klearlib.policy.decoder import Decoder, Decoding

# What asks the device for a number, for which the host would wait, and cannot be captured.
ASKING = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal"}


class Captured:
    """In place of a CUDA graph; its first run stands for the warm-up."""

    number = 0

    def __init__(self, advance):
        type(self).number += 1
        with Watch():
            advance()
        self.replay = advance


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.overloadpacket.__name__ not in ASKING, function
        return function(*args, **(kwargs or {}))


@pytest.fixture
def prompts():
    """Ids and mask [2, 5] of a prompt of five tokens and one of three."""
    ids = torch.tensor([[9, 8, 7, 6, 5], [0, 0, 4, 3, 2]])
    return ids, torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@torch.no_grad()
def test_it_gives_the_logits_of_the_plain_loop(new_policy, prompts, precision, padded):
    ids, mask = prompts if padded else (each[:1] for each in prompts)
    decoder = Decoder(new_policy(3), precision=precision)
    loops = [
        Decoding(decoder, ids, mask, 40),
        CapturedDecoding(decoder, ids, mask, 40, capture=Captured),
    ]
    Captured.number, draws = 0, torch.Generator().manual_seed(1)
    for loop in loops:
        loop.repeat(3)
    for step in range(35):
        plain, captured = (loop.logits for loop in loops)
        torch.testing.assert_close(
            captured, plain, atol=2e-5 if precision == "fp32" else 0.1, rtol=0
        )
        if step == 20:
            for loop in loops:
                loop.keep(torch.tensor([0, 2]))
        token = torch.randint(0, 200, (len(loops[0].logits),), generator=draws)
        for loop in loops:
            loop.step(token)
    # Once at first, once for the rows that left, and where the buffers were full.
    assert 2 < Captured.number < 12
