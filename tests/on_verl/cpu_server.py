"""The process that samples rollouts on CPUs. verl is not imported here: that takes seconds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import torch
from cpu_sampling import Request, decode
from transformers import AutoModelForCausalLM, AutoTokenizer

from klearlib.policy.prompts import end_ids

# Requests are decoded together once none came for so long, and at most so many.
_QUIET_S, _BATCH_ROWS = 0.02, 512


@dataclass
class Output:
    """The attributes of verl's ``TokenOutput``."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str = "completed"  # as verl's vLLM server says of an end token and of the budget
    routed_experts: None = None
    num_preempted: None = None
    extra_fields: dict = field(default_factory=dict)


@dataclass(frozen=True)
class _Waiting:
    request: Request
    done: asyncio.Future


class CpuServer:
    """Samples from a model in float32, and takes the trainer's weights."""

    def __init__(self, path: str, response_length: int, max_model_len: int):
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._ends = frozenset(end_ids(self._model, AutoTokenizer.from_pretrained(path)))
        self._response_length, self._max_model_len = response_length, max_model_len
        self._waiting: list[_Waiting] = []
        self._decoding: asyncio.Task | None = None
        self._global_steps: int | None = None

    async def ready(self) -> None: ...

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict,
        image_data: None = None,
        video_data: None = None,
    ) -> Output:
        """One response to `prompt_ids`; `sampling_params` are those of verl's vLLM server."""
        params = {"max_tokens": self._response_length, "logprobs": False, **sampling_params}
        params["max_tokens"] = min(params["max_tokens"], self._max_model_len - len(prompt_ids))
        request = Request.of(prompt_ids, params, model_ends=self._ends)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._decoding is None:
            self._decoding = asyncio.create_task(self._decode_waiting())
        sampled = await waiting.done
        # vLLM's number of alternatives is 0 where only the drawn token's is wanted.
        with_logp = params["logprobs"] not in (None, False)
        return Output(
            sampled.token_ids,
            sampled.logp if with_logp else None,
            extra_fields={"global_steps": self._global_steps},
        )

    async def update_weights(
        self, weights: dict[str, torch.Tensor], global_steps: int | None
    ) -> None:
        """Sample from `weights` from now on; responses carry `global_steps`."""
        while self._decoding is not None:
            await asyncio.sleep(_QUIET_S)
        self._model.load_state_dict(weights)
        self._global_steps = global_steps

    async def sleep(self) -> None: ...

    async def wake_up(self) -> None: ...

    async def _decode_waiting(self) -> None:
        while self._waiting:
            seen = 0
            while seen != len(self._waiting):
                seen = len(self._waiting)
                await asyncio.sleep(_QUIET_S)
            batch, self._waiting = self._waiting[:_BATCH_ROWS], self._waiting[_BATCH_ROWS:]
            requests = [waiting.request for waiting in batch]
            try:
                found = await asyncio.to_thread(decode, self._model, requests)
            except Exception as error:  # whatever it is, those who wait must hear of it
                for waiting in batch:
                    waiting.done.set_exception(error)
                continue
            for waiting, sampled in zip(batch, found, strict=True):
                waiting.done.set_result(sampled)
        self._decoding = None
