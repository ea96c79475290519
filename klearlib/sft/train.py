"""Stage ``sft``: a base model, a file of samples, and the fine-tuned model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import KlearError, MissingAsset
from klearlib.policy.compute import Compute
from klearlib.policy.load import load_policy
from klearlib.run.seeding import derive_seed
from klearlib.sft.batches import chat_example
from klearlib.sft.fit import fit

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

__all__ = ["fit", "read_turns", "train_sft"]

SAMPLES = "examples.parquet"


def train_sft(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    batch_size: int,
    learning_rate: float,
    final_learning_rate: float,
    normalizer: str,
    compute: dict,
    num_steps: int | None = None,
    num_epochs: int | None = None,
    warmup_steps: int | None = None,
    examples: str = "sft.jsonl",
    drop_longer: bool = False,
    drop_with_control: bool = False,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.95,
    checkpoint_every: int = 100,
) -> None:
    """Stage ``sft``: fine-tunes ``inputs["base"]/model`` and writes ``model/``, in the Hugging Face
    format, metrics.jsonl and timings.jsonl.

    It learns the samples of ``inputs["examples"]/examples.parquet`` (see
    `klearlib.data.tables`) where that input is given, and otherwise the file `examples` of
    ``inputs["world"]``: rows of prompt and response. A run that was killed anywhere and resumed
    equals the unbroken one bit for bit on a CPU; where the memory decided the budget of a
    micro-batch, from the next checkpoint on.

    Args:
        compute: the fields of `klearlib.policy.compute.Compute`.

    The others are those of `klearlib.sft.fit.fit`, and so are its errors. The paper: 4 epochs, 8e-5
    to 4e-5, Eq. 8 per sequence; it does not say whether it packs.

    Raises:
        MissingAsset: no such file, or the attention is not installed.
        KlearError: a row without prompt or response.
    """
    how = Compute(**compute)
    model, tokenizer = load_policy(inputs["base"] / "model", attention=how.attention)
    path = inputs["examples"] / SAMPLES if "examples" in inputs else inputs["world"] / examples
    fit(
        folder,
        model,
        tokenizer,
        [chat_example(tokenizer, prompt, response) for prompt, response in read_turns(path)],
        seed=derive_seed(seed, "sft"),
        num_steps=num_steps,
        num_epochs=num_epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        final_learning_rate=final_learning_rate,
        warmup_steps=warmup_steps,
        normalizer=normalizer,
        compute=how,
        drop_longer=drop_longer,
        drop_with_control=drop_with_control,
        adam_beta1=adam_beta1,
        adam_beta2=adam_beta2,
        checkpoint_every=checkpoint_every,
    )


def read_turns(path: Path) -> Iterator[tuple[str, str]]:
    """Prompt and response of each row, in order: of a parquet file of samples or of JSON lines.

    Raises:
        MissingAsset: no such file.
        KlearError: a line without prompt and response as texts.
    """
    if not path.is_file():
        raise MissingAsset(f"no samples at {path}: run the stage that makes them, or mend the name")
    if path.suffix == ".parquet":
        from klearlib.data.tables import read_samples

        yield from ((sample.prompt, sample.response) for sample in read_samples(path))
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                turn = row["prompt"], row["response"]
            except (ValueError, KeyError, TypeError) as error:
                raise KlearError(f"{path.name} line {number} is no sample: {error!r}") from error
            if not all(isinstance(text, str) for text in turn):
                raise KlearError(f"{path.name} line {number}: prompt and response must be texts")
            yield turn
