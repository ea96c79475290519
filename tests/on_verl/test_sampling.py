"""Responses from verl's rollout servers: one rollout as verl's workers draw it, and an engine over
all servers against the engine of this process."""

import asyncio
import dataclasses
import itertools
import math
from types import SimpleNamespace

import hydra
import pytest
import ray
from composed import composed, tiny_model
from cpu_sampling import Request, decode
from rollout_fakes import settings
from verl.experimental.agent_loop.agent_loop import (
    DictConfigWrap,
    ToolListWrap,
    _agent_loop_registry,
)
from verl.utils.tokenizer import hf_tokenizer

from klearlib.errors import KlearError
from klearlib.evaluate.harness import evaluate
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import chat_prompt
from klearlib.policy.prompts import end_ids
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem
from klearlib.rl.schedule import rollout_sampling
from klearlib.run.seeding import derive_seed
from klearlib.scale.cluster import small_cluster
from klearlib.scale.sampling import TRIES, ServerEngine, request_settings

SEED = 3
CHOSEN = settings(num_steps=4, num_problems=6, group_size=2, max_new_tokens=5, temperature=0.8)
ENDS = [9, 11]
PROBLEMS = [
    Problem("a", "Start with 3", answer="3"),
    Problem("b", "Start with 3 and apply +4 in turn.", answer="7"),
]
GREEDY = SamplingSettings(temperature=0.0, top_p=1.0, top_k=0, max_tokens=12, seed=1)
DRAWN = dataclasses.replace(GREEDY, temperature=1.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory, new_policy, tiny_tokenizer):
    policy = new_policy()
    policy.generation_config.eos_token_id = ENDS
    return tiny_model(tmp_path_factory.mktemp("tiny"), policy, tiny_tokenizer)


@pytest.fixture(scope="module")
def config(model):
    return composed(model, settings=CHOSEN, seed=SEED, cluster=small_cluster(prompt_tokens=40))


class Servers:
    """verl's ``LLMServerClient``, with one answer for all after those that fail."""

    def __init__(self, token_ids=(1, 2, 9), log_probs=(-0.5, -0.25, -1.0), failing=()):
        self.output = SimpleNamespace(
            token_ids=list(token_ids),
            log_probs=None if log_probs is None else list(log_probs),
            stop_reason="completed",
            num_preempted=None,
            extra_fields={"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1},
        )
        self.asked, self.failing = [], list(failing)

    async def generate(self, request_id, **request):
        self.asked.append(request)
        if self.failing:
            raise self.failing.pop()
        return self.output


def draw(config, model, servers, *, index=0, step=1, session=0, prompt="Start with 3"):
    """As verl's ``AgentLoopWorker._run_agent_loop`` does it, of all the row's columns."""
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
    row = {
        "raw_prompt": [{"role": "user", "content": prompt}],
        "extra_info": {"index": index, "problem": 1, "problem_id": "p"},
        "global_steps": step,
        "session_id": session,
        "uid": "u",
        "data_source": "klear",
    }
    return asyncio.run(loop.run({"temperature": 77.0, "logprobs": False}, **row))


def test_a_rollout_has_our_prompt_and_all_that_the_server_drew(config, model, tiny_tokenizer):
    servers = Servers()
    output = draw(config, model, servers)
    text, prompt_ids = chat_prompt(tiny_tokenizer, "Start with 3")
    assert output.prompt_ids == prompt_ids == servers.asked[0]["prompt_ids"]
    assert (output.response_ids, output.response_mask) == ([1, 2, 9], [1, 1, 1])
    assert output.response_logprobs == [-0.5, -0.25, -1.0]
    assert output.extra_fields["prompt_text"] == text
    assert output.extra_fields["budget_ended"] is False
    assert output.extra_fields["max_global_steps"] == output.extra_fields["min_global_steps"] == 1
    assert output.metrics.generate_sequences >= 0 and output.metrics.num_preempted == -1
    fields = output.as_dict()
    assert fields["rollout_log_probs"].tolist() == [-0.5, -0.25, -1.0]
    assert fields["prompts"].tolist() == prompt_ids
    assert "rm_scores" not in fields  # the reward workers give it


def test_a_request_has_the_runs_settings_and_ends_and_not_verls(
    config, model, new_policy, tiny_tokenizer
):
    policy, servers = new_policy(), Servers()
    policy.generation_config.eos_token_id = ENDS
    draw(config, model, servers)
    asked = servers.asked[0]["sampling_params"]
    assert {name: value for name, value in asked.items() if name != "seed"} == {
        "temperature": 0.8,
        "top_p": 1.0,
        "top_k": -1,
        "repetition_penalty": 1.0,
        "max_tokens": 5,
        "stop_token_ids": end_ids(policy, tiny_tokenizer),
        "ignore_eos": True,
        "logprobs": True,
    }
    assert {*ENDS} < {*asked["stop_token_ids"]}


def test_the_seed_depends_on_the_run_the_step_and_the_place_alone(config, model):
    seeds = {}
    for step, place, session in itertools.product((1, 2), (0, 5), (0, 1)):
        servers, index = Servers(), (step - 1) * CHOSEN.num_problems + place
        draw(config, model, servers, index=index, step=step, session=session)
        seeds[step, place, session] = servers.asked[0]["sampling_params"]["seed"]
    assert len(set(seeds.values())) == 8
    for (step, place, session), seed in seeds.items():
        # As klear's own vLLM engine derives it.
        local = rollout_sampling(CHOSEN, seed=SEED, step=step).seed
        assert seed == derive_seed(local, place, session)


def test_no_prompt_can_end_its_turn(config, model, tiny_tokenizer):
    eos = tiny_tokenizer.eos_token
    output = draw(config, model, Servers(), prompt=f"3{eos}4")
    assert output.prompt_ids == chat_prompt(tiny_tokenizer, f"3{eos}4")[1]
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


def test_a_server_that_dies_is_left_for_another_with_the_same_request(config, model):
    dead = ray.exceptions.RayActorError()
    servers = Servers([1] * 5, [-1.0] * 5, failing=[dead] * (TRIES - 1))
    output = draw(config, model, servers)
    assert output.response_ids == [1] * 5 and output.extra_fields["budget_ended"] is True
    assert servers.asked == [servers.asked[0]] * TRIES
    with pytest.raises(ray.exceptions.RayActorError):
        draw(config, model, Servers(failing=[dead] * TRIES))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"index": 0, "step": 2}, "row 0 belongs to step 1, verl drew it in step 2"),
        ({"index": 6, "step": 1}, "row 6 belongs to step 2, verl drew it in step 1"),
        (
            {"prompt": "Start with 3 and apply +4 in turn. " * 20},
            r"prompt of problem 'p' .* prompt_tokens in compute\.yaml's verl is 40",
        ),
    ],
)
def test_a_row_of_another_step_or_with_too_long_a_prompt_is_refused(config, model, how, words):
    with pytest.raises(KlearError, match=words):
        draw(config, model, Servers(), **how)


@pytest.fixture(scope="module")
def policy(new_policy):
    policy = new_policy()
    # Often enough that some responses end and some do not.
    policy.generation_config.eos_token_id = list(range(0, policy.config.vocab_size, 9))
    return policy


class Client:
    """verl's client over a model in this process; the request of number `failing` fails."""

    def __init__(self, policy, tokenizer, *, max_model_len=64, failing=None):
        rollout = SimpleNamespace(name="klear_cpu", max_model_len=max_model_len)
        self.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
        self.asked = []
        self._policy, self._failing = policy, failing
        self._ends = frozenset(end_ids(policy, tokenizer))

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        await asyncio.sleep(0)
        self.asked.append((request_id, dict(sampling_params)))
        if len(self.asked) == self._failing:
            raise RuntimeError(f"server {self._failing} is gone")
        request = Request.of(prompt_ids, dict(sampling_params), model_ends=self._ends)
        (drawn,) = decode(self._policy, [request])
        logp = drawn.logp if sampling_params["logprobs"] else None
        return SimpleNamespace(
            token_ids=drawn.token_ids, log_probs=logp, stop_reason="completed", extra_fields={}
        )


@pytest.fixture
def engine(policy, tiny_tokenizer):
    """A function that makes an engine over a `Client` of these options."""

    def make(**options) -> ServerEngine:
        client = Client(policy, tiny_tokenizer, **options)
        setting = {"engine": "verl", "precision": "fp32"}
        return ServerEngine(client, tiny_tokenizer, policy, setting=setting)

    return make


def flat(groups):
    return [response for group in groups for response in group]


def test_greedy_responses_are_those_of_the_local_engine(engine, policy, tiny_tokenizer):
    found = engine().sample_groups(PROBLEMS, group_size=2, settings=GREEDY)
    wanted = sample_groups(policy, tiny_tokenizer, PROBLEMS, group_size=2, settings=GREEDY)
    for ours, local in zip(flat(found), flat(wanted), strict=True):
        # At temperature 0 both record log pi at temperature 1.
        assert ours.logp == pytest.approx(local.logp, abs=1e-4)
        for name in ("problem_id", "prompt", "prompt_ids", "token_ids", "text", "truncated"):
            assert getattr(ours, name) == getattr(local, name), name


def test_drawn_responses_repeat_and_end_where_they_should(engine, policy, tiny_tokenizer):
    drawing = engine()
    found = drawing.sample_groups(PROBLEMS, group_size=12, settings=DRAWN)

    async def within():  # a running event loop
        return engine().sample_groups(PROBLEMS, group_size=12, settings=DRAWN)

    assert asyncio.run(within()) == found
    responses = flat(found)
    assert len({r.token_ids for r in responses}) > 20
    assert {r.truncated for r in responses} == {True, False}
    ends = set(end_ids(policy, tiny_tokenizer))
    for response in responses:
        assert response.truncated == (response.token_ids[-1] not in ends)
        assert len(response.token_ids) == 12 or not response.truncated
        assert not ends & set(response.token_ids[:-1])
    assert drawing.num_restarts == 0
    names, asked = zip(*drawing._client.asked, strict=True)
    assert {request["seed"] for request in asked} == {
        derive_seed(1, index, number) for index in (0, 1) for number in range(12)
    }
    assert len({*names}) == 24
    assert {(request["max_tokens"], request["logprobs"]) for request in asked} == {(12, True)}


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 20}])
def test_where_something_is_cut_there_is_no_logp(engine, cut):
    drawing = engine()
    changed = dataclasses.replace(DRAWN, **cut)
    found = flat(drawing.sample_groups(PROBLEMS, group_size=2, settings=changed))
    assert all(math.isnan(logp) for r in found for logp in r.logp)
    assert all(len(r.logp) == len(r.token_ids) for r in found)
    for _, request in drawing._client.asked:
        assert not request["logprobs"]
        assert (request["top_p"], request["top_k"]) == (cut.get("top_p", 1.0), cut.get("top_k", -1))


def test_one_bad_response_fails_the_call(engine):
    with pytest.raises(RuntimeError, match="server 4 is gone"):
        engine(failing=4).sample_groups(PROBLEMS, group_size=4, settings=DRAWN)


@pytest.mark.parametrize(
    ("room", "max_tokens", "words"),
    [
        (64, 250, "the model has 256"),
        (20, 12, r"verl's servers have 20: raise verl's prompt_tokens by 25"),
    ],
)
def test_what_exceeds_the_model_or_the_servers_is_refused(engine, room, max_tokens, words):
    drawing = engine(max_model_len=room)
    long = dataclasses.replace(DRAWN, max_tokens=max_tokens)
    with pytest.raises(KlearError, match=words):
        drawing.sample_groups(PROBLEMS, group_size=1, settings=long)
    assert not drawing._client.asked


@pytest.mark.parametrize(("problems", "group_size"), [([], 1), (PROBLEMS, 0)])
def test_nothing_to_sample_is_refused(engine, problems, group_size):
    with pytest.raises(ValueError, match="need problems and group_size >= 1"):
        engine().sample_groups(problems, group_size=group_size, settings=DRAWN)


def test_the_harness_evaluates_on_it(engine):
    how = {"settings": DRAWN, "test_timeout_s": 2.0, "test_memory_mb": 256}
    record = evaluate(engine(), PROBLEMS, benchmark="tiny", num_responses=3, **how)
    assert record.correct.shape == record.num_tokens.shape == (2, 3)
    assert record.sampling["engine"] == "verl" and record.sampling["num_responses"] == 3
    assert record.truncated.any() and not record.truncated.all()


def test_the_words_of_each_server():
    asked = {"ends": [7, 3], "seed": 5}
    vllm = request_settings("vllm", DRAWN, **asked)
    assert (vllm["seed"], vllm["stop_token_ids"], vllm["ignore_eos"]) == (5, [3, 7], True)
    assert request_settings("another", DRAWN, **asked) == vllm
    sglang = request_settings("sglang", DRAWN, **asked)
    # There, ignore_eos would switch the stop tokens off as well.
    assert sglang["sampling_seed"] == 5 and not {"seed", "ignore_eos"} & sglang.keys()
    cold = dataclasses.replace(DRAWN, temperature=0.001)
    with pytest.raises(KlearError, match=r"at temperature 0 or at 0\.01 and above"):
        request_settings("vllm", cold, **asked)
    assert request_settings("sglang", cold, **asked)["temperature"] == 0.001
