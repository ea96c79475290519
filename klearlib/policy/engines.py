"""Who samples: one interface, two engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from klearlib.policy.compute import Compute
from klearlib.policy.load import load_policy
from klearlib.policy.requests import Engine
from klearlib.policy.sampling import OnSampled, sample_groups
from klearlib.records import Problem, Response


class TransformersEngine(Engine):
    """The engine in this process: the weights are the trainer's own, so there is nothing to hand
    over and nothing to give back."""

    def __init__(self, model, tokenizer, compute: Compute, on_sampled: OnSampled | None = None):
        super().__init__(tokenizer, {"engine": compute.engine, "precision": compute.precision})
        self._model, self._how = model, {"on_sampled": on_sampled}
        self._how |= {"precision": compute.precision, "batch_rows": compute.batch_rows}

    def sample_groups(self, problems: Sequence[Problem], **how) -> list[list[Response]]:
        return sample_groups(self._model, self.tokenizer, problems, **how, **self._how)

    def wake(self) -> None:
        self._model.eval()


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
            how = {"attention": compute.attention, "precision": compute.precision}
            model, tokenizer = load_policy(path, **how, **stretched)  # nothing is trained
        engine = TransformersEngine(model, tokenizer, compute, on_sampled)
    try:
        yield engine
    finally:
        engine.close()
