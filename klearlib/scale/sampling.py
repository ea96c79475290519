"""Responses from verl's rollout servers, one request each: the engine of rollouts and
evaluations."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ray

from klearlib.errors import KlearError
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.requests import RequestEngine, draws_from_policy, request_words

TRIES = 3
"""How often a response is requested."""


async def whole_response(
    client,
    rollout: str,
    prompt_ids: Sequence[int],
    settings: SamplingSettings,
    *,
    ends: Collection[int],
    seed: int,
):
    """What verl's servers of the name `rollout` return for one request, with log-probabilities if
    `draws_from_policy`. If a server dies or breaks off, another is asked, and the seed makes the
    response the same. ends: the tokens that end a response. Raises KlearError for a response that
    neither ends nor fills its budget, or lacks log-probabilities; after `TRIES`, whatever the last
    one raised."""
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
            if output.stop_reason != "aborted":
                break
    drawn, most = len(output.token_ids), settings.max_tokens
    if not 0 < drawn <= most or (drawn < most and output.token_ids[-1] not in ends):
        raise KlearError(
            f"a rollout server left a response after {drawn} of {most} tokens without an end token "
            f"({output.stop_reason})"
        )
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
    started with ``enable_deterministic_inference``."""
    asked = request_words(settings, ends) | {"logprobs": draws_from_policy(settings)}
    if rollout == "sglang":
        del asked["ignore_eos"]  # it would switch the stop tokens off too
        return asked | {"sampling_seed": seed}
    return asked | {"seed": seed}


class ServerEngine(RequestEngine):
    """The engine by verl's rollout servers, with the weights that they have.

    Args:
        client: verl's ``LLMServerClient``. described, setting: see `RequestEngine`.
    """

    def __init__(self, client, tokenizer, described, *, setting: dict[str, str]):
        super().__init__(described, tokenizer, setting)
        self._client, self._rollout = client, client.config.actor_rollout_ref.rollout

    def _draw(self, prompts, seeds, settings):
        longest, room = max(map(len, prompts)) + settings.max_tokens, self._rollout.max_model_len
        if room is not None and longest > room:
            raise KlearError(
                f"prompt and response may need {longest} positions, verl's servers have {room}: "
                f"raise prompt_tokens in compute.yaml's verl by {longest - room}, or lower "
                "max_new_tokens"
            )
        # A thread of its own: the caller may be within a running event loop, which is blocked.
        with ThreadPoolExecutor(1, "klear-server-engine") as thread:
            drawn = thread.submit(asyncio.run, self._ask(prompts, seeds, settings)).result()
        with_logp = draws_from_policy(settings)
        return [(each.token_ids, each.log_probs if with_logp else None) for each in drawn]

    async def _ask(self, prompts, seeds, settings):
        """All at once; one that fails ends the call."""
        name, ends = self._rollout.name, self._ends
        requests = [
            whole_response(self._client, name, ids, settings, ends=ends, seed=seed)
            for ids, group in zip(prompts, seeds, strict=True)
            for seed in group
        ]
        return await asyncio.gather(*requests)
