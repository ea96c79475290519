"""Responses from verl's rollout servers: one request, and those who make one for each response, the
agent loop of the rollouts and the engine of the evaluations."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import uuid4

import ray
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.utils.fs import copy_to_local
from verl.utils.model import get_generation_config

from klearlib.errors import KlearError
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import chat_prompt
from klearlib.policy.prompts import end_ids
from klearlib.policy.requests import (
    RequestEngine,
    draws_from_policy,
    request_words,
    require_temperature,
)
from klearlib.rl.schedule import rollout_sampling
from klearlib.rl.settings import RLSettings
from klearlib.run.seeding import derive_seed
from klearlib.scale.problems import BUDGET_ENDED, KLEAR, PROMPT_TEXT

TRIES = 3
"""How often a response is asked for."""


async def whole_response(
    client,
    rollout: str,
    prompt_ids: Sequence[int],
    settings: SamplingSettings,
    *,
    ends: Collection[int],
    seed: int,
):
    """What verl's servers of the name `rollout` give to one request, with log-probabilities where
    `draws_from_policy`. A server that dies or breaks off is left for another, and the seed makes
    the response the same. ends: the tokens that end a response. Raises KlearError for a temperature
    that vLLM does not know, or a response that neither ends nor fills its budget, or lacks
    log-probabilities. After `TRIES` whatever the last one raised."""
    asked = request_settings(rollout, settings, ends=ends, seed=seed)
    for tries_left in reversed(range(TRIES)):
        try:
            output = await client.generate(
                request_id=uuid4().hex, prompt_ids=list(prompt_ids), sampling_params=asked
            )
        except ray.exceptions.RayActorError:
            if not tries_left:
                raise
        else:
            if output.stop_reason != "aborted" or not tries_left:
                break
    drawn, most = len(output.token_ids), settings.max_tokens
    if not drawn or (output.token_ids[-1] not in ends and drawn != most):
        raise KlearError(
            f"a rollout server left a response after {drawn} of {most} tokens without an end token "
            f"({output.stop_reason})"
        )
    if drawn > most:
        raise KlearError(f"a rollout server gave {drawn} tokens, {most} were asked for")
    if asked["logprobs"] and len(output.log_probs or ()) != drawn:
        raise KlearError(
            f"a rollout server gave {len(output.log_probs or ())} log-probabilities for {drawn} "
            "tokens: rollout.calculate_log_probs must stay true"
        )
    return output


def request_settings(
    rollout: str, settings: SamplingSettings, *, ends: Collection[int], seed: int
) -> dict:
    """The sampling parameters of one request; sglang heeds a seed only where its servers are
    started with ``enable_deterministic_inference``. KlearError for a temperature that vLLM does not
    know."""
    asked = request_words(settings, ends) | {"logprobs": draws_from_policy(settings)}
    if rollout == "vllm":
        require_temperature(settings)
    if rollout == "sglang":
        del asked["ignore_eos"]  # it would switch the stop tokens off too
        return asked | {"sampling_seed": seed}
    return asked | {"seed": seed}


@register(KLEAR)
class KlearAgentLoop(AgentLoopBase):
    """A rollout of `klearlib.rl.train`, drawn by verl's rollout servers, whose seed is derived from
    the run's, the step and its place in the step: it does not depend on when it is drawn and by
    whom."""

    def __init__(self, trainer_config, server_manager, tokenizer, **kwargs):
        # Not the base class's, which prepares turns of a conversation, and asks more of a tokenizer
        # than one response needs.
        self._config = trainer_config.config
        self._server, self._tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict, **row) -> AgentLoopOutput:
        """The rollout of a row of `klearlib.scale.problems` with its ``session_id`` in the group.

        sampling_params: verl's choice, which is not asked: the run's settings are. Raises
        KlearError for a row of another step, a prompt that is too long, or a response that is
        incomplete or without log-probabilities.
        """
        own = OmegaConf.to_container(self._config.klear, resolve=True)
        settings, seed = RLSettings(**own["settings"]), own["seed"]
        step, index = int(row["global_steps"]), int(row["extra_info"]["index"])
        due, place = divmod(index, settings.num_problems)
        if due + 1 != step:
            raise KlearError(f"row {index} belongs to step {due + 1}, verl drew it in step {step}")
        text, prompt_ids = chat_prompt(self._tokenizer, row["raw_prompt"][0]["content"])
        rollout = self._config.actor_rollout_ref.rollout
        if len(prompt_ids) > rollout.prompt_length:
            raise KlearError(
                f"the prompt of problem {row['extra_info']['problem_id']!r} has {len(prompt_ids)} "
                f"tokens, prompt_tokens in compute.yaml's verl is {rollout.prompt_length}: raise it"
            )
        ends = _ends(self._config.actor_rollout_ref.model.path, self._tokenizer)
        sampling = rollout_sampling(settings, seed=seed, step=step)
        own_seed = derive_seed(sampling.seed, place, int(row["session_id"]))
        begun = time.perf_counter()
        output = await whole_response(
            self._server, rollout.name, prompt_ids, sampling, ends=ends, seed=own_seed
        )
        preempted = -1 if output.num_preempted is None else output.num_preempted
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=list(output.token_ids),
            response_mask=[1] * len(output.token_ids),
            response_logprobs=list(output.log_probs),
            num_turns=2,
            metrics={
                "generate_sequences": time.perf_counter() - begun,
                "num_preempted": preempted,
            },
            extra_fields={
                **output.extra_fields,
                "turn_scores": [],
                "tool_rewards": [],
                PROMPT_TEXT: text,
                BUDGET_ENDED: output.token_ids[-1] not in ends,
            },
        )


@functools.cache
def _ends(path: str, tokenizer) -> frozenset[int]:
    """What `klearlib.policy.prompts.end_ids` finds, without the model's weights."""
    told = SimpleNamespace(generation_config=get_generation_config(copy_to_local(path)))
    return frozenset(end_ids(told, tokenizer))


class ServerEngine(RequestEngine):
    """The engine by verl's rollout servers, with the weights that they have.

    Args:
        client: verl's ``LLMServerClient``. described, setting: see `RequestEngine`.
    """

    def __init__(self, client, tokenizer, described, *, setting: dict[str, str]):
        super().__init__(described, tokenizer, setting)
        self._client, self._rollout = client, client.config.actor_rollout_ref.rollout

    def wake(self) -> None: ...

    def sleep(self) -> None: ...

    def close(self) -> None: ...

    def _draw(self, problems, prompts, seeds, settings):
        longest, room = max(map(len, prompts)) + settings.max_tokens, self._rollout.max_model_len
        if room is not None and longest > room:
            raise KlearError(
                f"prompt and response may need {longest} positions, verl's servers have {room}: "
                f"raise verl's prompt_tokens by {longest - room} or lower max_new_tokens"
            )
        # A thread of its own: the caller may be within a running event loop, which is blocked.
        with ThreadPoolExecutor(1, "klear-server-engine") as thread:
            drawn = thread.submit(asyncio.run, self._ask(prompts, seeds, settings)).result()
        with_logp = draws_from_policy(settings)
        return [(each.token_ids, each.log_probs if with_logp else None) for each in drawn]

    async def _ask(self, prompts, seeds, settings):
        """All at once; one that fails ends the call."""
        name, ends = self._rollout.name, self._ends
        return await asyncio.gather(
            *(
                whole_response(self._client, name, ids, settings, ends=ends, seed=seed)
                for ids, group in zip(prompts, seeds, strict=True)
                for seed in group
            )
        )
