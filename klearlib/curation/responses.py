"""n responses of a model to every problem, judged: what teachers write and references solve."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.chunks import chunks
from klearlib.curation.labels import labelled
from klearlib.curation.pass_rates import RATES, PassRate, pass_rate_of, write_pass_rates
from klearlib.data.problems import count_problems, iter_problems
from klearlib.data.tables import Sample, read_samples, write_samples
from klearlib.errors import KlearError, Stopped
from klearlib.policy.compute import Compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import open_engine
from klearlib.records import REASONS, Response
from klearlib.run.files import read_json, sha256_file, write_json
from klearlib.run.seeding import derive_seed
from klearlib.verify.groups import judge_responses

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

RESPONSES = "responses.parquet"
CARD = "card.json"

_CHUNK = 64  # problems that are sampled, judged and saved together
_PARTS = "parts"
_OPENED = re.compile(r"<think>\s*(?:</think>\s*)?\Z")


def respond(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    problems: str,
    teacher: str,
    num_responses: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
    test_timeout_s: float,
    test_memory_mb: int,
    compute: dict,
) -> None:
    """Stage ``responses``: `num_responses` responses of ``inputs["model"]/model`` to every problem
    of the file `problems` of ``inputs["problems"]``, judged by that problem's own tests or answer,
    as RL judges its rollouts: one that the token budget ended is wrong.

    Writes responses.parquet (a `tables.Sample` for each response, in the order of the problems),
    pass_rates.jsonl (a `PassRate` for each problem) and card.json. Problems are read, sampled and
    written 64 at a time; a run that was stopped or killed goes on behind the last of these, and its
    result is that of an unbroken run.

    Args:
        teacher: the model's name, for the samples. num_responses: up to 16 in the paper.
        temperature, top_p, max_new_tokens: of the sampling, see `SamplingSettings`.
        test_timeout_s, test_memory_mb: limits of one test of a program.
        compute: the fields of `klearlib.policy.compute.Compute`.

    Raises:
        Stopped: a stop was asked for; what was sampled is saved.
        KlearError: no problems, or a number out of range.
    """
    file, parts = inputs["problems"] / problems, folder.path / _PARTS
    _, done = folder.load_checkpoint() or ({}, 0)
    if (folder.path / CARD).exists():  # it is written last: only the parts are left
        shutil.rmtree(parts, ignore_errors=True)
        return
    total = count_problems(file)
    if not total:
        raise KlearError(f"{file.name} holds no problems to respond to")
    parts.mkdir(exist_ok=True)
    # Of each chunk its samples, and what they count.
    tables, counts = (
        {start: parts / f"{start:09}{ending}" for start in range(0, total, _CHUNK)}
        for ending in (".parquet", ".json")
    )
    folder.progress(done * num_responses, total * num_responses)

    def count(sampled: int, _: int) -> None:
        folder.progress(done * num_responses + sampled, total * num_responses)

    settings = SamplingSettings(
        temperature=temperature, top_p=top_p, top_k=0, max_tokens=max_new_tokens, seed=0
    )
    model = inputs["model"] / "model"
    with open_engine(model, compute=Compute(**compute), on_sampled=count) as engine:
        for chosen in chunks(islice(iter_problems(file), done, None), _CHUNK):
            seeded = replace(settings, seed=derive_seed(seed, "responses", teacher, done))
            groups = engine.sample_groups(chosen, group_size=num_responses, settings=seeded)
            judged = judge_responses(
                chosen, groups, test_timeout_s=test_timeout_s, test_memory_mb=test_memory_mb
            )
            samples = [
                labelled(Sample(p.id, p.prompt, whole_text(r), p.source, teacher), verdict)
                for p, group, verdicts in zip(chosen, groups, judged, strict=True)
                for r, verdict in zip(group, verdicts, strict=True)
            ]
            rates = [
                pass_rate_of(p.id, verdicts) for p, verdicts in zip(chosen, judged, strict=True)
            ]
            write_samples(samples, tables[done])
            num_truncated = sum(r.truncated for group in groups for r in group)
            counted = {"rates": [asdict(rate) for rate in rates], "num_truncated": num_truncated}
            write_json(counts[done], counted)
            done += len(chosen)
            folder.progress(done * num_responses, total * num_responses)
            folder.save_checkpoint({}, done)
            if folder.stop_requested and done < total:
                raise Stopped(f"stopped after {done} of {total} problems; run again")
    by_reason: Counter[str] = Counter(dict.fromkeys(REASONS, 0))

    def samples_in_order() -> Iterator[Sample]:
        for sample in chain.from_iterable(map(read_samples, tables.values())):
            by_reason[sample.reason] += 1
            yield sample

    write_samples(samples_in_order(), folder.path / RESPONSES)
    counted = [read_json(path) for path in counts.values()]
    write_pass_rates(
        (PassRate(**rate) for part in counted for rate in part["rates"]), folder.path / RATES
    )
    assert by_reason.total() == total * num_responses
    card = {
        "teacher": teacher,
        "num_problems": total,
        "num_responses": by_reason.total(),
        "num_by_reason": by_reason,
        "num_truncated": sum(part["num_truncated"] for part in counted),
    }
    card["parameters"] = {
        "seed": seed,
        "num_responses": num_responses,
        "temperature": temperature,
        "top_p": top_p,
        "max_new_tokens": max_new_tokens,
        "test_timeout_s": test_timeout_s,
        "test_memory_mb": test_memory_mb,
    }
    card["inputs"] = {problems: sha256_file(file)}
    card["outputs"] = {name: sha256_file(folder.path / name) for name in (RESPONSES, RATES)}
    write_json(folder.path / CARD, card)
    shutil.rmtree(parts, ignore_errors=True)


def whole_text(response: Response) -> str:
    """A response's text with the opening think tag, also where the chat template wrote it."""
    opened = _OPENED.search(response.prompt[-200:])
    return (opened[0] if opened else "") + response.text
