"""The engine samples from the weights that the trainer's model has, in every form of them."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from engine_contract import GREEDY, LOGP_TOLERANCE, PROBLEMS, flat, how
from killing import alive
from small_models import response_logprobs

from klearlib.policy.compute import local_compute
from klearlib.policy.engines import open_engine
from klearlib.policy.load import load_policy, save_policy
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem

# More than two blocks of vLLM's prefix cache on a CPU, which have 128 tokens.
LONG = [Problem(id="long", prompt="apply +4 to 3, then " * 22, answer="1")]


def same_as_transformers(engine, policy, tokenizer, problems=PROBLEMS, settings=GREEDY):
    found = flat(engine.sample_groups(problems, group_size=1, settings=settings))
    expected = flat(sample_groups(policy, tokenizer, problems, group_size=1, settings=settings))
    assert [r.token_ids for r in found] == [r.token_ids for r in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.logp == pytest.approx(theirs.logp, abs=LOGP_TOLERANCE)
    return [r.token_ids for r in found]


def test_new_weights_are_sampled_from_after_wake(engine, policy, tiny_tokenizer, changed):
    """Also those of a prompt whose keys and values the cache held."""
    problems = PROBLEMS + LONG
    seen = [same_as_transformers(engine, policy, tiny_tokenizer, problems)]
    for seed in (1, 2):
        changed(seed)
        stale = flat(engine.sample_groups(problems, group_size=1, settings=GREEDY))
        assert [r.token_ids for r in stale] == seen[-1], "weights move at wake() alone"
        engine.sleep()
        engine.wake()
        seen.append(same_as_transformers(engine, policy, tiny_tokenizer, problems))
    for before, after in pairwise(seen):
        assert all(a != b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("trained", [False, True], ids=["its folder", "a trainer"])
def test_a_stretched_model(new_policy, tiny_tokenizer, tmp_path, trained):
    """Beyond the positions that it had, from its folder and, with a separate head, from a trainer;
    and no process is left."""
    policy = new_policy(3, max_position_embeddings=64, tie_word_embeddings=not trained)
    save_policy(policy, tiny_tokenizer, tmp_path)
    yarn = {"yarn_factor": 4.0, "yarn_original": 64}
    model, tokenizer = load_policy(tmp_path, device="cpu", **yarn)
    given = {"model": model, "tokenizer": tokenizer} if trained else {}
    settings = how(temperature=0.0, max_tokens=150)
    compute = local_compute(engine="vllm", batch_rows=8)
    with open_engine(tmp_path, compute=compute, **given, **yarn) as engine:
        engine.wake()
        engine.sleep()
        found = same_as_transformers(engine, model, tokenizer, settings=settings)
        process = engine._process.pid
        engine.close()  # and again at the end of the block
        assert not alive(process)
    assert max(map(len, found)) > 64, "the test needs positions that only YaRN gives"
    unstretched, _ = load_policy(tmp_path, device="cpu")
    unstretched.config.max_position_embeddings = 512
    (expected,) = sample_groups(
        unstretched, tokenizer, PROBLEMS[:1], group_size=1, settings=settings
    )
    assert expected[0].token_ids != found[0], "YaRN changes what is drawn"


def test_bf16_is_near_fp32(opened, new_policy):
    """The master weights stay fp32 and are rounded at the hand-over."""
    policy = new_policy(4)
    engine = opened(policy, precision="bf16")
    responses = flat(engine.sample_groups(PROBLEMS, group_size=4, settings=how(max_tokens=20)))
    exact_logp = partial(response_logprobs, policy)
    gaps = torch.tensor(
        [
            abs(ours - exact)
            for response in responses
            for ours, exact in zip(response.logp, exact_logp(response).tolist(), strict=True)
        ]
    )
    assert 1e-4 < gaps.mean() < 0.05, "bf16 has 8 bits: another precision, the same weights"
    assert engine.setting == {"engine": "vllm", "precision": "bf16"}
