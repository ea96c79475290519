"""What engines are, and what those have in common that draw each response as a request."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.prompts import chat_prompts, end_ids, response_to
from klearlib.records import Problem, Response
from klearlib.run.seeding import derive_seed


class Engine(ABC):
    """What draws the responses of a policy.

    Seeds, end tokens, truncation and the log-probabilities of `Response` mean the same in all
    engines; that the same seed gives the same responses holds for each engine alone. setting: what
    a sampling record says of the engine, ``engine`` and ``precision``.
    """

    def __init__(self, tokenizer, setting: dict[str, str]):
        self.tokenizer, self.setting = tokenizer, setting

    @abstractmethod
    def sample_groups(
        self, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
    ) -> list[list[Response]]:
        """G responses to each problem; see `klearlib.policy.sampling.sample_groups`."""

    def wake(self) -> None:  # noqa: B027 - most engines have nothing to do here
        """Be ready to sample, with the weights that the trainer's model has now."""

    def sleep(self) -> None:  # noqa: B027
        """Give back the memory that training needs."""

    def close(self) -> None:  # noqa: B027
        """End what the engine started."""


class RequestEngine(Engine):
    """An engine without what draws, which is `_draw` of a subclass.

    Each request has a seed of its own, derived from the call's seed, the problem's place and the
    response's number. `Response.logp` is log pi at the temperature where `draws_from_policy`, and
    NaN for every token elsewhere. described: what holds ``config`` and ``generation_config`` of the
    model.
    """

    def __init__(self, described, tokenizer, setting: dict[str, str]):
        super().__init__(tokenizer, setting)
        self._described, self._ends = described, frozenset(end_ids(described, tokenizer))

    def sample_groups(
        self, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
    ) -> list[list[Response]]:
        prompts = chat_prompts(
            self._described,
            self.tokenizer,
            problems,
            group_size=group_size,
            max_tokens=settings.max_tokens,
        )
        seeds = [
            [derive_seed(settings.seed, index, number) for number in range(group_size)]
            for index in range(len(problems))
        ]
        drawn, groups = iter(self._draw([ids for _, ids in prompts], seeds, settings)), []
        for problem, prompt in zip(problems, prompts, strict=True):
            groups.append([])
            for token_ids, logp in itertools.islice(drawn, group_size):
                logp = [math.nan] * len(token_ids) if logp is None else logp
                truncated = token_ids[-1] not in self._ends
                groups[-1].append(
                    response_to(problem, prompt, token_ids, logp, truncated, self.tokenizer)
                )
        return groups

    @abstractmethod
    def _draw(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
        settings: SamplingSettings,
    ) -> Sequence[tuple[Sequence[int], Sequence[float] | None]]:
        """Tokens, and log-probabilities where `draws_from_policy`, of the P x G responses, group
        after group."""


def draws_from_policy(settings: SamplingSettings) -> bool:
    """Whether nothing is cut or penalised: a server knows only the distribution that it draws from,
    which is the policy's then. At temperature 0 cuts change nothing."""
    cut = settings.temperature > 0 and (settings.top_p < 1 or settings.top_k > 0)
    return settings.repetition_penalty == 1 and not cut


def request_words(settings: SamplingSettings, ends: Collection[int]) -> dict:
    """The settings of a request in vLLM's words; `ends` are the tokens that end it."""
    return {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,
        "repetition_penalty": settings.repetition_penalty,
        "max_tokens": settings.max_tokens,
        "stop_token_ids": sorted(ends),
        "ignore_eos": True,  # the end tokens are those above
    }
