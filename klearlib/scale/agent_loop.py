"""One rollout in verl: our prompt tokens, seed and end tokens, one request to a server."""

from __future__ import annotations

import functools
import time
from types import SimpleNamespace

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.utils.fs import copy_to_local
from verl.utils.model import get_generation_config

from klearlib.errors import KlearError
from klearlib.policy.load import chat_prompt
from klearlib.policy.prompts import end_ids
from klearlib.rl.schedule import rollout_sampling
from klearlib.rl.settings import RLSettings
from klearlib.run.seeding import derive_seed
from klearlib.scale.problems import AGENT
from klearlib.scale.rewards import PROMPT_TEXT
from klearlib.scale.server_engine import whole_response


@register(AGENT)
class KlearAgentLoop(AgentLoopBase):
    """A rollout of `klearlib.rl.train`, drawn by verl's rollout servers.

    Its seed is derived from the run's, the step and its place in the step, so that it does not
    depend on when it is drawn and by whom.
    """

    def __init__(self, trainer_config, server_manager, tokenizer, **kwargs):
        # Not the base class's, which prepares turns of a conversation, and asks more of a tokenizer
        # than one response needs.
        self._config = trainer_config.config
        self._server, self._tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict, **row) -> AgentLoopOutput:
        """The rollout of a row of `klearlib.scale.problems` with its ``session_id`` in the group.

        Args:
            sampling_params: verl's choice, which is not asked: the run's settings are.

        Raises:
            KlearError: a row of another step, a prompt that is too long, or a response that is
                incomplete or without log-probabilities.
        """
        settings, seed = _settings(self._config)
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
        begun = time.perf_counter()
        output = await whole_response(
            self._server,
            rollout.name,
            prompt_ids,
            sampling,
            ends=ends,
            seed=derive_seed(sampling.seed, place, int(row["session_id"])),
            logprobs=True,
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
            },
        )


def _settings(config) -> tuple[RLSettings, int]:
    own = config.klear
    return RLSettings(**OmegaConf.to_container(own.settings, resolve=True)), own.seed


def _ends(path: str, tokenizer) -> frozenset[int]:
    """What `klearlib.policy.prompts.end_ids` finds, without the model's weights."""
    return frozenset(
        end_ids(SimpleNamespace(generation_config=_generation_config(path)), tokenizer)
    )


@functools.cache
def _generation_config(path: str):
    return get_generation_config(copy_to_local(path))
