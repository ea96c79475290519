"""Judging maths answers: extraction, the exact fast path, and math-verify for the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from klearlib.records import Verdict
from klearlib.verify import MAX_TIMEOUT_S, answer_judge, extract
from klearlib.verify.extract import MAX_ANSWER_CHARS
from klearlib.verify.match import BEST_FIRST, Undecided, match
from klearlib.verify.plain import plain_text
from klearlib.verify.pool import ask

__all__ = ["ANSWER_FORMS", "verify_answer", "verify_answers"]

ANSWER_FORMS = ("written", "equivalent")

_STRANGE = r"\boxed{\sqrt{0.73684}}"  # no gold
_PLAIN_INTEGER = re.compile(r"-?[1-9]\d{0,15}|0")


class _Case(NamedTuple):
    """An answer that only math-verify can decide, in plain texts: a job of `answer_judge`."""

    answer: str
    golds: tuple[str, ...]
    is_written: bool


class _Outcome(NamedTuple):
    """`reason` is a word of `records.REASONS`, or the case whose judgement it will be."""

    reason: str | _Case
    extracted: str | None = None
    found: str | None = None


def verify_answer(
    response: str,
    gold: str | Sequence[str],
    *,
    prompt: str = "",
    require_think: bool = True,
    truncated: bool = False,
    answer_form: str = "written",
    timeout_s: float = 5.0,
) -> Verdict:
    r"""Judge one response; see `verify_answers`, which is faster for many.

    >>> verify_answer(r"<think>70 + 3</think> It is \boxed{073}.", "73").reason
    'correct'
    """
    return verify_answers(
        [response],
        [gold],
        prompts=[prompt],
        require_think=require_think,
        truncated=[truncated],
        answer_form=answer_form,
        timeout_s=timeout_s,
    )[0]


def verify_answers(
    responses: Sequence[str],
    golds: Sequence[str | Sequence[str]],
    *,
    prompts: Sequence[str] | None = None,
    require_think: bool = True,
    truncated: Sequence[bool] | None = None,
    answer_form: str = "written",
    workers: int | None = None,
    timeout_s: float = 5.0,
) -> list[Verdict]:
    r"""Judge the final answers of N responses, in order, under the paper's rule for RL.

    The answer is looked for behind the last ``</think>`` (`extract.find_answer`); where there is
    none the reason is ``no_answer``. Both think tags must be there (``bad_format`` otherwise, and
    the answer is not looked at).

    What `match.match` can compare by itself (equal texts, numbers, intervals, lists of such) is
    decided here, exactly; every other expression by math-verify in processes of this module's own.
    The call may come from any thread, from a running event loop (it blocks) and from worker
    processes. It returns after at most 5 * N * `timeout_s` / `workers` seconds and the processes'
    starts, and raises nothing for a hostile answer: ``timeout`` and ``judge_error`` are verdicts,
    with ``correct=False``, and never the response's mistake.

    Args:
        responses: N generated texts, without their prompts.
        golds: N gold answers; where one is a list, any one of its strings may match.
        prompts: N prompts, None for empty ones; one that ends with ``<think>`` counts as the
            opening tag of its response.
        require_think: False judges text without tags.
        truncated: N flags, True where the token budget ended the response: it is ``truncated`` and
            not looked at. None: nobody knows, and each is judged as the text that it is.
        answer_form: ``"written"``: where the gold answer is a written number, so is a right answer,
            and an expression equal to it is ``not_worked_out``; ``"equivalent"``: it is right.
        workers: how many judge processes this Python process may grow to; None for one per usable
            core, up to `pool.MAX_DEFAULT_WORKERS`. They stay till `pool.close_pool`.
        timeout_s: wall-clock seconds for one answer, from the moment a process takes it. Time in
            which it was ready to run and had no core does not count, up to five times the limit.

    Returns:
        N verdicts. ``extracted`` is the answer that was judged, cut at `MAX_ANSWER_CHARS`: a box
        longer than that is not judged (``judge_error``).

    Raises:
        ValueError: lengths that differ, an empty gold, a number out of range.
        MissingAsset: math-verify is needed and not installed.

    >>> [v.reason for v in verify_answers(["<think></think>7", "7"], ["7", "7"])]
    ['correct', 'bad_format']
    """
    readings = extract.read_responses(
        responses, prompts=prompts, truncated=truncated, require_think=require_think, golds=golds
    )
    if answer_form not in ANSWER_FORMS:
        raise ValueError(f"answer_form must be one of {ANSWER_FORMS}, got {answer_form!r}")
    texts = [_gold_texts(number, gold) for number, gold in enumerate(golds)]
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(
            f"timeout_s must be a positive number of seconds, at most {MAX_TIMEOUT_S:g}, "
            f"got {timeout_s}"
        )
    is_written = answer_form == "written"
    outcomes = [
        _Outcome(fault) if fault else _decide(reading.text, gold, is_written)
        for (reading, fault), gold in zip(readings, texts, strict=True)
    ]
    # the rollouts of a group often share a case
    cases = list(dict.fromkeys(each.reason for each in outcomes if isinstance(each.reason, _Case)))
    jobs = [(case._asdict(), timeout_s) for case in cases]
    replies = ask(answer_judge.__name__, jobs, workers=workers)
    judged = {case: reply["reason"] for case, reply in zip(cases, replies, strict=True)}
    verdicts = []
    for (reading, _), (word, extracted, found) in zip(readings, outcomes, strict=True):
        reason = judged[word] if isinstance(word, _Case) else word
        tags = reading.has_think_open, reading.has_think_close
        verdicts.append(Verdict(reason == "correct", reason, extracted, *tags, found=found))
    return verdicts


def has_no_match(golds: Sequence[str | Sequence[str]]) -> list[bool]:
    r"""Of N golds, whether nothing but its own text can be right: the judge cannot read it.

    >>> has_no_match(["7", r"\frac{1}{0}"])
    [False, True]
    """
    verdicts = verify_answers([_STRANGE] * len(golds), golds, require_think=False)
    return [verdict.reason == "judge_error" for verdict in verdicts]


def _gold_texts(number: int, gold: str | Sequence[str]) -> tuple[str, ...]:
    texts = (gold,) if isinstance(gold, str) else tuple(gold or ())
    texts = tuple(extract.unboxed(text).strip() if isinstance(text, str) else "" for text in texts)
    if not texts or not all(texts):
        raise ValueError(
            f"golds[{number}] must be a non-empty string or a list of such, got {gold!r}"
        )
    return texts


def _decide(text: str, golds: tuple[str, ...], is_written: bool) -> _Outcome:
    answer = extract.find_answer(text)
    if answer is None:
        return _Outcome("no_answer")
    seen, found = answer
    if seen in golds:
        return _Outcome("correct", seen, found)
    if len(seen) > MAX_ANSWER_CHARS:
        return _Outcome("judge_error", seen[:MAX_ANSWER_CHARS], found)
    if _PLAIN_INTEGER.fullmatch(seen) and all(map(_PLAIN_INTEGER.fullmatch, golds)):
        return _Outcome("wrong", seen, found)
    plain = plain_text(seen)
    if not plain:
        return _Outcome("no_answer")
    words, undecided = set(), []
    for gold in golds:
        plain_gold = plain_text(gold) if len(gold) <= MAX_ANSWER_CHARS else ""
        if not plain_gold:
            words.add("judge_error")
            continue
        try:
            words.add(match(plain_gold, plain, is_written=is_written, symbolic=None))
        except Undecided:
            undecided.append(plain_gold)
        except MemoryError:
            raise
        except Exception:  # a failed judgement is never a "wrong", as in `answer_judge.judge`
            words.add("judge_error")
    best = min(words, key=BEST_FIRST.index, default=None)
    if best == "correct" or not undecided:
        return _Outcome(best, seen, found)
    return _Outcome(_Case(plain, tuple(undecided), is_written), seen, found)
