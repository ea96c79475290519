"""Where a GPU's memory runs out, the parts are halved, and the update is the same."""

import pytest
import torch
from small_models import small_model

from klearlib.errors import KlearError
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.memory import choose_micro_batch_tokens
from klearlib.sft.batches import Example
from klearlib.sft.train import batch_gradient

pytestmark = pytest.mark.gpu

NUM_TOKENS = 512


@pytest.fixture
def policy():
    model = small_model(
        vocab_size=2048,
        hidden_size=256,
        num_hidden_layers=8,
        head_dim=64,
        intermediate_size=1024,
        max_position_embeddings=NUM_TOKENS,
        tie_word_embeddings=True,
        initializer_range=0.02,
    )
    return model.to("cuda").train()


@pytest.fixture(autouse=True)
def all_memory_at_the_end():
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def leave_free(num_bytes: int) -> None:
    """No more than this for torch beside what it holds."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    fraction = (torch.cuda.memory_reserved() + num_bytes) / total
    torch.cuda.set_per_process_memory_fraction(fraction)


def examples(count: int) -> list[Example]:
    draws = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 2048, (count, NUM_TOKENS), generator=draws).tolist()
    return [Example(tuple(row), num_prompt=8) for row in rows]


def gradient(policy, plan, count: int) -> torch.Tensor:
    """Of one batch, on the CPU."""
    batch_gradient(policy, examples(count), normalizer="token", plan=plan, seed=0)
    found = torch.cat([p.grad.flatten() for p in policy.parameters()]).cpu()
    policy.zero_grad(set_to_none=True)
    return found


def plan_of(policy, rows: int):
    return plan_batches(policy, local_compute(micro_batch_tokens=rows * NUM_TOKENS))


def peak_of(policy, count: int) -> int:
    """Bytes that one pass over `count` rows takes beside the weights."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    plan = plan_of(policy, count)
    gradient(policy, plan, count)
    assert plan.num_halvings == 0
    return torch.cuda.max_memory_allocated() - before


def test_a_pass_that_does_not_fit_is_halved_and_gives_the_same_gradient(policy):
    expected = gradient(policy, plan_of(policy, 32), 32)
    # Room for 8 rows and a half more, not for 16.
    leave_free(int(1.5 * peak_of(policy, 8)))
    plan = plan_of(policy, 32)
    found = gradient(policy, plan, 32)
    assert plan.num_halvings >= 1 and plan.micro_batch_tokens < 32 * NUM_TOKENS
    assert float((found - expected).norm() / expected.norm()) < 1e-4
    halvings = plan.num_halvings
    gradient(policy, plan, 32)
    assert plan.num_halvings == halvings, "it stays as small as it had to become"


def test_what_is_chosen_from_the_memory_fits(policy):
    for num_bytes in (2**29, 2**31):
        leave_free(num_bytes)
        compute = local_compute(micro_batch_tokens=0)
        tokens = choose_micro_batch_tokens(policy, compute=compute, free_bytes=num_bytes)
        plan = plan_batches(policy, local_compute(micro_batch_tokens=tokens))
        gradient(policy, plan, max(2, 2 * tokens // NUM_TOKENS))
        assert plan.num_halvings == 0


def test_a_single_row_that_does_not_fit_is_one_line(policy):
    plan = plan_of(policy, 4)
    leave_free(2**20)
    with pytest.raises(KlearError, match=r"out of memory .* gradient_checkpointing") as caught:
        gradient(policy, plan, 4)
    assert "\n" not in str(caught.value)
