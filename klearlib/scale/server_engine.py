"""Responses from verl's rollout servers: one request, and an `Engine` over all of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ray

from klearlib.errors import KlearError
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.prompts import chat_prompts, end_ids
from klearlib.policy.vllm_engine import LOWEST_TEMPERATURE
from klearlib.records import Problem, Response
from klearlib.run.seeding import derive_seed

TRIES = 3
"""How often a response is asked for."""


def request_settings(
    rollout: str, settings: SamplingSettings, *, ends: Collection[int], seed: int, logprobs: bool
) -> dict:
    """The sampling parameters of one request to verl's servers of the name `rollout`.

    Args:
        ends: the tokens that end a response. seed: of this request; sglang heeds it only where its
            servers are started with ``enable_deterministic_inference``.
        logprobs: ask for the log-probability of each token.

    Raises:
        KlearError: a temperature that vLLM does not know.
    """
    if rollout == "vllm" and 0 < settings.temperature < LOWEST_TEMPERATURE:
        raise KlearError(
            f"vLLM samples at temperature 0 or at {LOWEST_TEMPERATURE} and above, got "
            f"{settings.temperature}"
        )
    asked = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,
        "repetition_penalty": settings.repetition_penalty,
        "max_tokens": settings.max_tokens,
        "stop_token_ids": sorted(ends),
        "logprobs": logprobs,
    }
    if rollout == "sglang":  # where ignore_eos would switch the stop tokens off too
        return asked | {"sampling_seed": seed}
    return asked | {"seed": seed, "ignore_eos": True}


def require_whole(output, *, ends: Collection[int], max_tokens: int, logprobs: bool) -> None:
    """Raises KlearError where a server's `output` is no whole response: it neither ends nor fills
    its budget, or log-probabilities that were asked for are missing."""
    drawn = len(output.token_ids)
    if not drawn or (output.token_ids[-1] not in ends and drawn != max_tokens):
        raise KlearError(
            f"a rollout server left a response after {drawn} of {max_tokens} tokens without an end "
            f"token ({output.stop_reason})"
        )
    if drawn > max_tokens:
        raise KlearError(f"a rollout server gave {drawn} tokens, {max_tokens} were asked for")
    if logprobs and len(output.log_probs or ()) != drawn:
        raise KlearError(
            f"a rollout server gave {len(output.log_probs or ())} log-probabilities for {drawn} "
            "tokens: rollout.calculate_log_probs must stay true"
        )


async def whole_response(
    client,
    rollout: str,
    prompt_ids: Sequence[int],
    settings: SamplingSettings,
    *,
    ends: Collection[int],
    seed: int,
    logprobs: bool,
):
    """What a server gives to one request. A server that dies or breaks off is left for another, and
    the seed makes the response the same.

    Raises as `request_settings` and `require_whole`; after `TRIES` whatever the last one raised.
    """
    asked = request_settings(rollout, settings, ends=ends, seed=seed, logprobs=logprobs)
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
    require_whole(output, ends=ends, max_tokens=settings.max_tokens, logprobs=logprobs)
    return output


class ServerEngine:
    """`klearlib.policy.engines.Engine` by verl's rollout servers, with the weights that they have.

    Each response is a request with a seed of its own, derived from the call's seed, the problem's
    place and the response's number. `Response.logp` is log pi at the temperature where nothing cuts
    or penalises, and NaN for every token where something does, since the servers know only the
    distribution that they draw from.

    Args:
        client: verl's ``LLMServerClient``.
        model_config: what holds ``config`` and ``generation_config`` of the model.
        setting: what a sampling record says of the engine.
    """

    num_restarts = 0

    def __init__(self, client, tokenizer, model_config, *, setting: dict[str, str]):
        self.tokenizer, self.setting = tokenizer, setting
        self._client, self._model = client, model_config
        self._ends = frozenset(end_ids(model_config, tokenizer))
        self._rollout = client.config.actor_rollout_ref.rollout

    def sample_groups(
        self, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
    ) -> list[list[Response]]:
        """G responses to each problem; see `klearlib.policy.sampling.sample_groups`. It may be
        called within a running event loop, and blocks it.

        Raises:
            ValueError: no problems, group_size < 1.
            KlearError: more positions than the model or the servers have, or a response that a
                server left unfinished. One that fails ends the call.
        """
        if not problems or group_size < 1:
            raise ValueError(
                f"need problems and group_size >= 1, got {len(problems)}, {group_size}"
            )
        prompts = chat_prompts(
            self._model, self.tokenizer, problems, max_tokens=settings.max_tokens
        )
        longest = max(len(ids) for _, ids in prompts) + settings.max_tokens
        room = self._rollout.max_model_len
        if room is not None and longest > room:
            raise KlearError(
                f"prompt and response may need {longest} positions, verl's servers have {room}: "
                f"raise verl's prompt_tokens by {longest - room} or lower max_new_tokens"
            )
        with ThreadPoolExecutor(1, "klear-server-engine") as thread:
            return thread.submit(
                asyncio.run, self._sample(problems, prompts, group_size, settings)
            ).result()

    def wake(self) -> None: ...

    def sleep(self) -> None: ...

    def close(self) -> None: ...

    async def _sample(self, problems, prompts, group_size, settings) -> list[list[Response]]:
        drawn = await asyncio.gather(
            *(
                self._respond(problem, prompt, settings, derive_seed(settings.seed, index, number))
                for index, (problem, prompt) in enumerate(zip(problems, prompts, strict=True))
                for number in range(group_size)
            )
        )
        return [drawn[start : start + group_size] for start in range(0, len(drawn), group_size)]

    async def _respond(
        self, problem: Problem, prompt: tuple[str, list[int]], settings: SamplingSettings, seed: int
    ) -> Response:
        text, prompt_ids = prompt
        cut = settings.temperature > 0 and (settings.top_p < 1 or settings.top_k > 0)
        is_policy = settings.repetition_penalty == 1 and not cut
        output = await whole_response(
            self._client,
            self._rollout.name,
            prompt_ids,
            settings,
            ends=self._ends,
            seed=seed,
            logprobs=is_policy,
        )
        token_ids = tuple(output.token_ids)
        return Response(
            problem_id=problem.id,
            prompt=text,
            prompt_ids=tuple(prompt_ids),
            token_ids=token_ids,
            logp=tuple(output.log_probs) if is_policy else (math.nan,) * len(token_ids),
            text=self.tokenizer.decode(list(token_ids), skip_special_tokens=True),
            truncated=token_ids[-1] not in self._ends,
        )
