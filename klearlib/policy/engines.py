"""Who samples: one interface, two engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import OnSampled, sample_groups
from klearlib.records import Problem, Response


class Engine(Protocol):
    """What draws the responses of a policy.

    Seeds, end tokens, truncation and the log-probabilities of `Response` mean the same in all
    engines; that the same seed gives the same responses holds for each engine alone. setting: what
    a sampling record says of the engine, ``engine`` and ``precision``.
    """

    tokenizer: object
    setting: dict[str, str]

    def sample_groups(
        self, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
    ) -> list[list[Response]]:
        """G responses to each problem; see `klearlib.policy.sampling.sample_groups`."""

    def wake(self) -> None:
        """Be ready to sample, with the weights that the trainer's model has now."""

    def sleep(self) -> None:
        """Give back the memory that training needs."""

    def close(self) -> None:
        """End what the engine started."""


class TransformersEngine:
    """The engine in this process: the weights are the trainer's own, so there is nothing to hand
    over and nothing to give back."""

    def __init__(self, model, tokenizer, compute: Compute, on_sampled: OnSampled | None = None):
        self.tokenizer = tokenizer
        self.setting = {"engine": compute.engine, "precision": compute.precision}
        self._model, self._compute, self._on_sampled = model, compute, on_sampled

    def sample_groups(
        self, problems: Sequence[Problem], *, group_size: int, settings: SamplingSettings
    ) -> list[list[Response]]:
        return sample_groups(
            self._model,
            self.tokenizer,
            problems,
            group_size=group_size,
            settings=settings,
            precision=self._compute.precision,
            batch_rows=self._compute.batch_rows,
            on_sampled=self._on_sampled,
        )

    def wake(self) -> None:
        self._model.eval()

    def sleep(self) -> None: ...

    def close(self) -> None: ...


@contextmanager
def open_engine(
    path: str | Path,
    *,
    compute: Compute,
    model=None,
    tokenizer=None,
    yarn_factor: float | None = None,
    yarn_original: int | None = None,
    on_sampled: OnSampled | None = None,
) -> Iterator[Engine]:
    """The engine that `compute` names, closed at the end of the context.

    Args:
        path: the model, a local folder or a hub id.
        model, tokenizer: the trainer's, loaded from `path`, whose weights are sampled from; None
            where nothing is trained.
        yarn_factor, yarn_original: see `klearlib.policy.load.with_yarn`.
        on_sampled: called now and then with the responses of a call that are done and all of them;
            by the engine in this process alone.

    Raises:
        MissingAsset: no such model, or the engine is not installed.
    """
    stretched = {"yarn_factor": yarn_factor, "yarn_original": yarn_original}
    if compute.engine == "vllm":
        from klearlib.policy.vllm_engine import VLLMEngine

        engine: Engine = VLLMEngine(
            path, compute=compute, model=model, tokenizer=tokenizer, **stretched
        )
    else:
        if model is None:
            model, tokenizer = load_policy(path, attention=compute.attention, **stretched)
        engine = TransformersEngine(model, tokenizer, compute, on_sampled)
    try:
        yield engine
    finally:
        engine.close()
