"""The vLLM sampling engine: the groups of `klearlib.policy.sampling`, drawn by vLLM 0.32."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import torch
import torch.multiprocessing  # teaches ForkingPickler to share tensors

from klearlib.errors import KlearError, MissingAsset
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.prompts import chat_prompts, end_ids
from klearlib.policy.vllm_process import EngineFailed, EngineLost, EngineProcess
from klearlib.policy.vllm_start import (
    INSTALL,
    check_machine,
    description,
    engine_arguments,
    engine_environment,
    start_error,
)
from klearlib.records import Problem, Response
from klearlib.run.seeding import derive_seed

MAX_RESTARTS = 2
# vLLM raises any positive temperature below this one to it.
LOWEST_TEMPERATURE = 0.01


class VLLMEngine:
    """`klearlib.policy.engines.Engine` by vLLM in a process of its own, whose weights are those of
    the trainer's model.

    Each response is a request with a seed of its own, derived from the call's seed, the problem's
    place and the response's number; its group's prompt is computed once, by the prefix cache, which
    is emptied at the start of each call. So the same seed, settings and weights give the same
    responses on the same machine, whatever was sampled before. `Response.logp` is log pi at the
    temperature where nothing cuts or penalises; vLLM knows only the distribution that it draws
    from, so with top_p below 1, top_k or a repetition penalty it is NaN for every token, at
    temperature 0 with a penalty alone.

    An engine that dies while it samples, or says nothing for `vllm_process.SILENT_S`, is started
    again with the weights of now, and all responses of the call are drawn anew, the same ones:
    `num_restarts` counts it. Weights are handed over in memory, a GPU's by handles on the trainer's
    own tensors: nothing is copied but into vLLM's layout and precision.

    Args:
        path: the model; only its config is read where a trainer's `model` is given.
        model, tokenizer: the trainer's, or None for those of `path`.
        yarn_factor, yarn_original: see `klearlib.policy.load.with_yarn`; a trainer's model is
            stretched already and its own config counts.

    Raises:
        MissingAsset: vLLM is not installed or does not load, or there is no such model.
        ParameterError: more GPUs than there are, or YaRN that the model cannot have.
        KlearError: too little memory, or a model that vLLM cannot run.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        compute: Compute,
        model=None,
        tokenizer=None,
        yarn_factor: float | None = None,
        yarn_original: int | None = None,
    ):
        device = "cuda" if torch.cuda.is_available() else "cpu"
        check_machine(compute.tensor_parallel, device)
        described = model
        if model is None:
            described, tokenizer = description(path, yarn_factor, yarn_original)
        self.tokenizer = tokenizer
        self.setting = {"engine": compute.engine, "precision": compute.precision}
        self.num_restarts = 0
        self._model, self._num_workers = model, compute.tensor_parallel
        self._described = described
        self._ends = end_ids(described, tokenizer)
        self._arguments = engine_arguments(
            path, described.config, compute, device, handed_over=model is not None
        )
        self._environment = engine_environment(device)
        self._can_sleep = device == "cuda"
        self._asleep = False
        self._process: EngineProcess | None = None
        self._start()

    def sample_groups(
        self, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
    ) -> list[list[Response]]:
        """G responses to each problem; see `klearlib.policy.sampling.sample_groups`.

        Raises:
            ValueError: no problems, group_size < 1.
            KlearError: more positions than the model has, a temperature that vLLM does not know, or
                an engine that died or failed `MAX_RESTARTS` + 1 times.
        """
        if not problems or group_size < 1:
            raise ValueError(
                f"need problems and group_size >= 1, got {len(problems)}, {group_size}"
            )
        if 0 < settings.temperature < LOWEST_TEMPERATURE:
            raise KlearError(
                f"vLLM samples at temperature 0 or at {LOWEST_TEMPERATURE} and above, got "
                f"{settings.temperature}"
            )
        assert not self._asleep, "wake() comes before sampling"
        prompts = chat_prompts(
            self._described, self.tokenizer, problems, max_tokens=settings.max_tokens
        )
        seeds = [
            [derive_seed(settings.seed, index, number) for number in range(group_size)]
            for index in range(len(problems))
        ]
        request = ([ids for _, ids in prompts], seeds, self._request_settings(settings))
        drawn = self._surviving(lambda: self._ask("sample", *request))
        if len(drawn) != len(problems) * group_size:
            raise KlearError(
                f"vLLM gave {len(drawn)} responses to {len(problems)} groups of {group_size}"
            )
        responses = iter(drawn)
        return [
            [_response(problem, prompt, next(responses), self.tokenizer) for _ in range(group_size)]
            for problem, prompt in zip(problems, prompts, strict=True)
        ]

    def wake(self) -> None:
        """Be ready to sample, with the weights that the trainer's model has now."""
        self._surviving(self._wake)

    def sleep(self) -> None:
        """Give the GPU's memory back; nothing on a CPU."""
        if not self._can_sleep or self._asleep:
            return
        # Weights that wake() hands over again need not be kept in the host's memory.
        self._surviving(lambda: self._ask("sleep", 1 if self._model is None else 2))
        self._asleep = True

    def close(self) -> None:
        """End the engine's process. May be called twice."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> None:
        try:
            self._process = EngineProcess(self._arguments, self._environment)
            device = self._process.device
            if self._model is not None and self._model.device.type != device:
                raise MissingAsset(
                    f"the installed vLLM computes on {device}, the model is on "
                    f"{self._model.device.type}: {INSTALL}"
                )
            self._hand_over()
            # A kernel that this model lacks shows in a step alone.
            self._ask("sample", [[0]], [[0]], {"max_tokens": 1, "detokenize": False})
        except (EngineFailed, EngineLost) as error:
            self.close()
            raise start_error(str(error)) from error
        except BaseException:
            self.close()
            raise
        self._asleep = False

    def _ask(self, name: str, *arguments):
        assert self._process is not None, "the engine is closed"
        return self._process.ask(name, *arguments)

    def _surviving(self, work: Callable):
        """`work()`, on an engine that is started anew where one failed."""
        for left in reversed(range(MAX_RESTARTS + 1)):
            try:
                return work()
            except (EngineFailed, EngineLost) as error:
                if not left:
                    self.close()
                    raise KlearError(
                        f"vLLM failed {MAX_RESTARTS + 1} times, the last time: {error}; "
                        "run again, or give engine: transformers"
                    ) from error
                print(f"vLLM is started again: {error}", file=sys.stderr, flush=True)
                self.close()
                self._start()
                self.num_restarts += 1

    def _wake(self) -> None:
        if self._asleep:
            torch.cuda.empty_cache()
            self._ask("wake", ["weights"])
        self._hand_over()
        if self._asleep:
            self._ask("wake", ["kv_cache"])
            self._asleep = False

    def _hand_over(self) -> None:
        if self._model is None:
            return
        # Held until the answer: what is not contiguous is a copy.
        weights = [(name, p.detach().contiguous()) for name, p in self._model.named_parameters()]
        # One for each worker: a handle can be opened once.
        payloads = [bytes(ForkingPickler.dumps(weights)) for _ in range(self._num_workers)]
        self._ask("load", payloads)

    def _request_settings(self, settings: SamplingSettings) -> dict:
        cut = settings.temperature > 0 and (settings.top_p < 1 or settings.top_k > 0)
        is_policy = settings.repetition_penalty == 1 and not cut
        return {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k or -1,
            "repetition_penalty": settings.repetition_penalty,
            "max_tokens": settings.max_tokens,
            "stop_token_ids": self._ends,
            "ignore_eos": True,  # the end tokens are those above
            "detokenize": False,
            "logprobs": 0 if is_policy else None,
            "flat_logprobs": True,
        }


def _response(problem: Problem, prompt: tuple[str, list[int]], drawn: tuple, tokenizer) -> Response:
    text, prompt_ids = prompt
    token_ids, logp, reason = drawn
    if reason not in ("stop", "length"):
        raise KlearError(f"vLLM left a response to problem {problem.id!r} unfinished: {reason}")
    return Response(
        problem_id=problem.id,
        prompt=text,
        prompt_ids=tuple(prompt_ids),
        token_ids=tuple(token_ids),
        logp=(math.nan,) * len(token_ids) if logp is None else tuple(logp),
        text=tokenizer.decode(list(token_ids), skip_special_tokens=True),
        truncated=reason == "length",
    )
