"""Responses from verl's rollout servers: one request, and an engine over all servers against the
engine of this process."""

import asyncio
import dataclasses
import math
from types import SimpleNamespace

import pytest
import ray
from cpu_sampling import Request, decode
from engine_contract import EngineContract, flat

from klearlib.errors import KlearError
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.prompts import end_ids
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem
from klearlib.run.seeding import derive_seed
from klearlib.scale.sampling import TRIES, ServerEngine, request_settings, whole_response

ENDS = [9, 11]
PROBLEMS = [
    Problem("a", "Start with 3", answer="3"),
    Problem("b", "Start with 3 and apply +4 in turn.", answer="7"),
]
GREEDY = SamplingSettings(temperature=0.0, top_p=1.0, top_k=0, max_tokens=12, seed=1)
DRAWN = dataclasses.replace(GREEDY, temperature=1.0)


class Servers:
    """verl's ``LLMServerClient``, with one answer for all after those that fail."""

    def __init__(self, token_ids=(1, 2, 9), log_probs=(-0.5, -0.25, -1.0), failing=()):
        self.output = SimpleNamespace(
            token_ids=list(token_ids),
            log_probs=None if log_probs is None else list(log_probs),
            stop_reason="completed",
        )
        self.asked, self.failing = [], list(failing)

    async def generate(self, request_id, **request):
        self.asked.append(request)
        if self.failing:
            raise self.failing.pop()
        return self.output


def ask(servers):
    short = dataclasses.replace(DRAWN, max_tokens=5)
    return asyncio.run(whole_response(servers, "another", [3, 4], short, ends=ENDS, seed=7))


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        (Servers(log_probs=None), "gave 0 log-probabilities for 3 tokens"),
        (Servers(log_probs=(-1.0,)), "gave 1 log-probabilities for 3 tokens"),
        (Servers(token_ids=(), log_probs=()), "after 0 of 5 tokens"),
        (Servers(token_ids=(1, 2), log_probs=(-1.0, -1.0)), "after 2 of 5 tokens"),
        (Servers(token_ids=(1,) * 5 + (9,), log_probs=(-1.0,) * 6), "after 6 of 5 tokens"),
    ],
    ids=["no logp", "fewer logp", "aborted", "cut short", "too long"],
)
def test_an_incomplete_response_is_refused(servers, words):
    with pytest.raises(KlearError, match=words):
        ask(servers)


def test_a_server_that_dies_is_left_for_another_with_the_same_request():
    dead = ray.exceptions.RayActorError()
    servers = Servers([1] * 5, [-1.0] * 5, failing=[dead] * (TRIES - 1))
    assert ask(servers).token_ids == [1] * 5
    assert servers.asked == [servers.asked[0]] * TRIES
    with pytest.raises(ray.exceptions.RayActorError):
        ask(Servers(failing=[dead] * TRIES))


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


class TestServers(EngineContract):
    @pytest.fixture
    def engine(self, engine):
        return engine(max_model_len=256)


def test_greedy_responses_are_those_of_the_local_engine(engine, policy, tiny_tokenizer):
    found = engine().sample_groups(PROBLEMS, group_size=2, settings=GREEDY)
    wanted = sample_groups(policy, tiny_tokenizer, PROBLEMS, group_size=2, settings=GREEDY)
    for ours, local in zip(flat(found), flat(wanted), strict=True):
        # At temperature 0 both record log pi at temperature 1.
        assert ours.logp == pytest.approx(local.logp, abs=1e-4)
        for name in ("problem_id", "prompt", "prompt_ids", "token_ids", "text", "truncated"):
            assert getattr(ours, name) == getattr(local, name), name


def test_drawn_responses_repeat_within_a_running_event_loop(engine):
    drawing = engine()
    found = drawing.sample_groups(PROBLEMS, group_size=12, settings=DRAWN)

    async def within():  # a running event loop
        return engine().sample_groups(PROBLEMS, group_size=12, settings=DRAWN)

    assert asyncio.run(within()) == found
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
        (64, 250, "the model allows 256"),
        (20, 12, r"verl's servers have 20: raise prompt_tokens .* by 25"),
    ],
)
def test_what_exceeds_the_model_or_the_servers_is_refused(engine, room, max_tokens, words):
    drawing = engine(max_model_len=room)
    long = dataclasses.replace(DRAWN, max_tokens=max_tokens)
    with pytest.raises(KlearError, match=words):
        drawing.sample_groups(PROBLEMS, group_size=1, settings=long)
    assert not drawing._client.asked


def test_the_words_of_each_server():
    asked = {"ends": [7, 3], "seed": 5}
    vllm = request_settings("vllm", DRAWN, **asked)
    assert (vllm["seed"], vllm["stop_token_ids"], vllm["ignore_eos"]) == (5, [3, 7], True)
    assert request_settings("another", DRAWN, **asked) == vllm
    sglang = request_settings("sglang", DRAWN, **asked)
    # There, ignore_eos would switch the stop tokens off as well.
    assert sglang["sampling_seed"] == 5 and not {"seed", "ignore_eos"} & sglang.keys()
