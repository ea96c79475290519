"""Sampling from verl's rollout servers, against the engine of this process."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from cpu_sampling import Request, decode

from klearlib.errors import KlearError
from klearlib.evaluate.harness import evaluate
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.prompts import end_ids
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem
from klearlib.run.seeding import derive_seed
from klearlib.scale.sampling import ServerEngine, request_settings

PROBLEMS = [
    Problem("a", "Start with 3", answer="3"),
    Problem("b", "Start with 3 and apply +4 in turn.", answer="7"),
]
GREEDY = SamplingSettings(temperature=0.0, top_p=1.0, top_k=0, max_tokens=12, seed=1)
DRAWN = SamplingSettings(temperature=1.0, top_p=1.0, top_k=0, max_tokens=12, seed=1)


@pytest.fixture(scope="module")
def policy(new_policy):
    policy = new_policy()
    # Often enough that some responses end and some do not.
    policy.generation_config.eos_token_id = list(range(0, policy.config.vocab_size, 9))
    return policy


class Client:
    """verl's client over a model in this process; `spoil` changes what a server answers."""

    def __init__(self, policy, tokenizer, *, max_model_len=64, spoil=None):
        rollout = SimpleNamespace(name="klear_cpu", max_model_len=max_model_len)
        self.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
        self.asked = []
        self._policy, self._spoil = policy, spoil
        self._ends = frozenset(end_ids(policy, tokenizer))

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        await asyncio.sleep(0)
        self.asked.append((request_id, list(prompt_ids), dict(sampling_params)))
        request = Request.of(prompt_ids, dict(sampling_params), model_ends=self._ends)
        (drawn,) = decode(self._policy, [request])
        logp = drawn.logp if sampling_params["logprobs"] else None
        output = SimpleNamespace(
            token_ids=drawn.token_ids, log_probs=logp, stop_reason="completed", extra_fields={}
        )
        if self._spoil:
            self._spoil(output, len(self.asked))
        return output


def engine(policy, tokenizer, **options) -> ServerEngine:
    client = Client(policy, tokenizer, **options)
    return ServerEngine(client, tokenizer, policy, setting={"engine": "verl", "precision": "fp32"})


def flat(groups):
    return [response for group in groups for response in group]


def test_greedy_responses_are_those_of_the_local_engine(policy, tiny_tokenizer):
    found = engine(policy, tiny_tokenizer).sample_groups(PROBLEMS, group_size=2, settings=GREEDY)
    wanted = sample_groups(policy, tiny_tokenizer, PROBLEMS, group_size=2, settings=GREEDY)
    for ours, local in zip(flat(found), flat(wanted), strict=True):
        # At temperature 0 both record log pi at temperature 1.
        assert ours.logp == pytest.approx(local.logp, abs=1e-4)
        for name in ("problem_id", "prompt", "prompt_ids", "token_ids", "text", "truncated"):
            assert getattr(ours, name) == getattr(local, name), name


def test_drawn_responses_repeat_and_end_where_they_should(policy, tiny_tokenizer):
    drawing = engine(policy, tiny_tokenizer)
    found = drawing.sample_groups(PROBLEMS, group_size=12, settings=DRAWN)
    again = engine(policy, tiny_tokenizer).sample_groups(PROBLEMS, group_size=12, settings=DRAWN)
    assert [[r.token_ids for r in g] for g in found] == [[r.token_ids for r in g] for g in again]
    responses = flat(found)
    assert len({r.token_ids for r in responses}) > 20
    assert {r.truncated for r in responses} == {True, False}
    ends = set(end_ids(policy, tiny_tokenizer))
    for response in responses:
        assert response.truncated == (response.token_ids[-1] not in ends)
        assert len(response.token_ids) == 12 or not response.truncated
        assert not ends & set(response.token_ids[:-1])
    assert drawing.num_restarts == 0


def test_each_request_has_its_own_seed_and_the_whole_setting(policy, tiny_tokenizer):
    drawing = engine(policy, tiny_tokenizer)
    drawing.sample_groups(PROBLEMS, group_size=3, settings=DRAWN)
    asked = drawing._client.asked
    seeds = {request["seed"] for _, _, request in asked}
    assert seeds == {derive_seed(1, index, number) for index in (0, 1) for number in range(3)}
    assert len({name for name, _, _ in asked}) == 6
    for _, _, request in asked:
        assert {name: value for name, value in request.items() if name != "seed"} == {
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "max_tokens": 12,
            "stop_token_ids": end_ids(policy, tiny_tokenizer),
            "ignore_eos": True,
            "logprobs": True,
        }


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 20}])
def test_where_something_is_cut_there_is_no_logp(policy, tiny_tokenizer, cut):
    settings = SamplingSettings(**{**DRAWN.record(), **cut})
    drawing = engine(policy, tiny_tokenizer)
    found = drawing.sample_groups(PROBLEMS, group_size=2, settings=settings)
    assert all(math.isnan(logp) for r in flat(found) for logp in r.logp)
    assert all(len(r.logp) == len(r.token_ids) for r in flat(found))
    for _, _, request in drawing._client.asked:
        assert not request["logprobs"]
        assert (request["top_p"], request["top_k"]) == (cut.get("top_p", 1.0), cut.get("top_k", -1))


def fail(output, number):
    if number == 4:
        raise RuntimeError("server 4 is gone")


def unfinished(output, number):
    output.token_ids, output.log_probs = output.token_ids[:0], output.log_probs[:0]
    output.stop_reason = "aborted"


def cut_short(output, number):
    output.token_ids, output.log_probs = [1, 2], [-1.0, -1.0]


def too_long(output, number):
    output.token_ids = [1] * 12 + [0]


def without_logp(output, number):
    output.log_probs = None


def with_fewer_logps(output, number):
    output.log_probs = output.log_probs[:-1]


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (fail, RuntimeError, "server 4 is gone"),
        (unfinished, KlearError, r"after 0 of 12 tokens without an end token \(aborted\)"),
        (cut_short, KlearError, "after 2 of 12 tokens without an end token"),
        (too_long, KlearError, "gave 13 tokens, 12 were asked for"),
        (without_logp, KlearError, "gave 0 log-probabilities for"),
        (with_fewer_logps, KlearError, "log-probabilities for"),
    ],
)
def test_one_bad_response_fails_the_call(policy, tiny_tokenizer, spoil, error, words):
    drawing = engine(policy, tiny_tokenizer, spoil=spoil)
    with pytest.raises(error, match=words):
        drawing.sample_groups(PROBLEMS, group_size=4, settings=DRAWN)


def test_it_samples_inside_a_running_event_loop(policy, tiny_tokenizer):
    drawing = engine(policy, tiny_tokenizer)

    async def within() -> int:
        return len(drawing.sample_groups(PROBLEMS, group_size=2, settings=DRAWN))

    assert asyncio.run(within()) == 2


def test_what_exceeds_the_model_or_the_servers_is_refused(policy, tiny_tokenizer):
    long = SamplingSettings(**{**DRAWN.record(), "max_tokens": 250})
    with pytest.raises(KlearError, match="the model has 256"):
        engine(policy, tiny_tokenizer).sample_groups(PROBLEMS, group_size=1, settings=long)
    drawing = engine(policy, tiny_tokenizer, max_model_len=20)
    with pytest.raises(
        KlearError, match=r"verl's servers have 20: raise verl's prompt_tokens by 25"
    ):
        drawing.sample_groups(PROBLEMS, group_size=1, settings=DRAWN)
    assert not drawing._client.asked


@pytest.mark.parametrize(("problems", "group_size"), [([], 1), (PROBLEMS, 0)])
def test_nothing_to_sample_is_refused(policy, tiny_tokenizer, problems, group_size):
    with pytest.raises(ValueError, match="need problems and group_size >= 1"):
        engine(policy, tiny_tokenizer).sample_groups(
            problems, group_size=group_size, settings=DRAWN
        )


def test_the_harness_evaluates_on_it(policy, tiny_tokenizer):
    record = evaluate(
        engine(policy, tiny_tokenizer),
        PROBLEMS,
        benchmark="tiny",
        num_responses=3,
        settings=DRAWN,
        test_timeout_s=2.0,
        test_memory_mb=256,
    )
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
    cold = SamplingSettings(**{**DRAWN.record(), "temperature": 0.001})
    with pytest.raises(KlearError, match=r"at temperature 0 or at 0\.01 and above"):
        request_settings("vllm", cold, **asked)
    assert request_settings("sglang", cold, **asked)["temperature"] == 0.001
