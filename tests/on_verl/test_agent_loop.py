"""One rollout as verl's workers draw it: tokens, seed, ends, and what must not pass in silence."""

import asyncio
from types import SimpleNamespace

import hydra
import pytest
from composed import composed, tiny_model
from rollout_fakes import settings
from verl.experimental.agent_loop.agent_loop import (
    DictConfigWrap,
    ToolListWrap,
    _agent_loop_registry,
)
from verl.utils.tokenizer import hf_tokenizer

import klearlib.scale.sampling  # noqa: F401 - what is registered with verl
from klearlib.errors import KlearError
from klearlib.policy.load import chat_prompt
from klearlib.policy.prompts import end_ids
from klearlib.rl.schedule import rollout_sampling
from klearlib.run.seeding import derive_seed
from klearlib.scale.cluster import small_cluster

SEED = 3
CHOSEN = settings(num_steps=4, num_problems=6, group_size=2, max_new_tokens=5, temperature=0.8)
ENDS = [9, 11]


@pytest.fixture(scope="module")
def model(tmp_path_factory, new_policy, tiny_tokenizer):
    policy = new_policy()
    policy.generation_config.eos_token_id = ENDS
    return tiny_model(tmp_path_factory.mktemp("tiny"), policy, tiny_tokenizer)


@pytest.fixture(scope="module")
def config(model):
    return composed(model, settings=CHOSEN, seed=SEED, cluster=small_cluster(prompt_tokens=40))


class Servers:
    """verl's ``LLMServerClient``, with one answer for all."""

    def __init__(self, token_ids=(1, 2, 9), log_probs=(-0.5, -0.25, -1.0), **fields):
        self.output = SimpleNamespace(
            token_ids=list(token_ids),
            log_probs=None if log_probs is None else list(log_probs),
            stop_reason="completed",
            num_preempted=None,
            extra_fields={"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1},
            **fields,
        )
        self.asked = []

    async def generate(self, request_id, **request):
        self.asked.append(request)
        return self.output


def row(*, index=0, step=1, session=0, prompt="Start with 3"):
    """What verl's worker hands an agent loop, of all the row's columns."""
    return {
        "raw_prompt": [{"role": "user", "content": prompt}],
        "extra_info": {"index": index, "problem": 1, "problem_id": "p"},
        "global_steps": step,
        "session_id": session,
        "uid": "u",
        "data_source": "klear",
    }


def draw(config, model, servers, **changes):
    """As verl's ``AgentLoopWorker._run_agent_loop`` does it."""
    loop = hydra.utils.instantiate(
        config=_agent_loop_registry["klear"],
        trainer_config=DictConfigWrap(config=config),
        server_manager=servers,
        tokenizer=hf_tokenizer(str(model)),
        processor=None,
        hf_model_type="qwen3",
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )
    return asyncio.run(loop.run({"temperature": 77.0, "logprobs": False}, **row(**changes)))


def test_a_rollout_has_our_prompt_and_all_that_the_server_drew(config, model, tiny_tokenizer):
    servers = Servers()
    output = draw(config, model, servers)
    text, prompt_ids = chat_prompt(tiny_tokenizer, "Start with 3")
    assert output.prompt_ids == prompt_ids == servers.asked[0]["prompt_ids"]
    assert (output.response_ids, output.response_mask) == ([1, 2, 9], [1, 1, 1])
    assert output.response_logprobs == [-0.5, -0.25, -1.0]
    assert output.extra_fields["prompt_text"] == text
    assert output.extra_fields["max_global_steps"] == output.extra_fields["min_global_steps"] == 1
    assert output.metrics.generate_sequences >= 0 and output.metrics.num_preempted == -1
    fields = output.as_dict()
    assert fields["rollout_log_probs"].tolist() == [-0.5, -0.25, -1.0]
    assert fields["prompts"].tolist() == prompt_ids
    assert "rm_scores" not in fields  # the reward workers give it


def test_a_request_has_the_runs_settings_and_not_verls(config, model, new_policy):
    servers = Servers()
    draw(config, model, servers)
    asked = servers.asked[0]["sampling_params"]
    assert {name: value for name, value in asked.items() if name != "seed"} == {
        "temperature": 0.8,
        "top_p": 1.0,
        "top_k": -1,
        "repetition_penalty": 1.0,
        "max_tokens": 5,
        "stop_token_ids": sorted({*ENDS, new_policy().config.eos_token_id}),
        "ignore_eos": True,
        "logprobs": True,
    }


def test_the_ends_are_those_of_the_local_run(config, model, new_policy, tiny_tokenizer):
    policy = new_policy()
    policy.generation_config.eos_token_id = ENDS
    servers = Servers()
    draw(config, model, servers)
    assert servers.asked[0]["sampling_params"]["stop_token_ids"] == end_ids(policy, tiny_tokenizer)


def test_the_seed_depends_on_the_run_the_step_and_the_place_alone(config, model):
    seeds = {}
    for step in (1, 2):
        for place in (0, 5):
            for session in (0, 1):
                servers = Servers()
                index = (step - 1) * CHOSEN.num_problems + place
                draw(config, model, servers, index=index, step=step, session=session)
                seeds[step, place, session] = servers.asked[0]["sampling_params"]["seed"]
    assert len(set(seeds.values())) == 8
    for (step, place, session), seed in seeds.items():
        # As klear's own vLLM engine derives it.
        local = rollout_sampling(CHOSEN, seed=SEED, step=step).seed
        assert seed == derive_seed(local, place, session)


def test_no_prompt_can_end_its_turn(config, model, tiny_tokenizer):
    eos = tiny_tokenizer.eos_token
    servers = Servers()
    output = draw(config, model, servers, prompt=f"3{eos}4")
    expected = chat_prompt(tiny_tokenizer, f"3{eos}4")[1]
    assert output.prompt_ids == expected
    plain = chat_prompt(tiny_tokenizer, "34")[1]
    num_ends = plain.count(tiny_tokenizer.eos_token_id)
    assert output.prompt_ids.count(tiny_tokenizer.eos_token_id) == num_ends


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        (Servers(log_probs=None), "gave 0 log-probabilities for 3 tokens"),
        (Servers(log_probs=(-1.0,)), "gave 1 log-probabilities for 3 tokens"),
        (Servers(token_ids=(), log_probs=()), "after 0 of 5 tokens"),
        (Servers(token_ids=(1, 2), log_probs=(-1.0, -1.0)), "after 2 of 5 tokens"),
        (Servers(token_ids=(1,) * 5 + (9,), log_probs=(-1.0,) * 6), "gave 6 tokens, 5"),
    ],
    ids=["no logp", "fewer logp", "aborted", "cut short", "too long"],
)
def test_an_incomplete_rollout_is_refused(config, model, servers, words):
    with pytest.raises(KlearError, match=words):
        draw(config, model, servers)


def test_a_rollout_that_fills_its_budget_is_whole(config, model):
    output = draw(config, model, Servers(token_ids=[1] * 5, log_probs=[-1.0] * 5))
    assert len(output.response_ids) == 5


@pytest.mark.parametrize(("index", "step"), [(0, 2), (6, 1), (23, 3)])
def test_a_row_of_another_step_is_refused(config, model, index, step):
    with pytest.raises(
        KlearError, match=f"row {index} belongs to step .*verl drew it in step {step}"
    ):
        draw(config, model, Servers(), index=index, step=step)


def test_a_prompt_that_is_too_long_is_refused_and_not_cut(config, model):
    with pytest.raises(
        KlearError, match=r"prompt of problem 'p' .* prompt_tokens in compute\.yaml's verl is 40"
    ):
        draw(config, model, Servers(), prompt="Start with 3 and apply +4 in turn. " * 20)
