"""Responses that come with a problem, and which of them are usable."""

from __future__ import annotations

from klearlib.data.marks import THINK_CLOSE, THINK_OPEN, last_boxed
from klearlib.data.rows import UnusableRow
from klearlib.records import LabelledResponse


def boxed_answer(solution: str) -> str:
    """The last box of a solution, for data sets without a column of answers."""
    answer = last_boxed(solution)
    if answer is None:
        raise UnusableRow("no_answer", r"there is no \boxed{} with an answer in it")
    return answer


def thought_fault(text: str, *, must_think: bool) -> str | None:
    """Why a response cannot be used, as a word of `REASONS`, or None.

    must_think: also where it has no think tags at all. A missing opening tag is no fault: many
    templates write it into the prompt.
    """
    if not text.strip():
        return "no_response"
    if THINK_CLOSE in text:
        # A thought that opens anew after the last closing tag never ended.
        return "unclosed_think" if THINK_OPEN in text.rpartition(THINK_CLOSE)[2] else None
    if THINK_OPEN in text:
        return "unclosed_think"
    return "no_think" if must_think else None


def only_response(
    text: str, *, teacher: str = "", is_correct: bool | None = None, labelled_by: str = ""
) -> tuple[LabelledResponse, ...]:
    """The response of a row that has one; a teacher's must think. UnusableRow: see
    `thought_fault`."""
    fault = thought_fault(text, must_think=bool(teacher))
    if fault:
        raise UnusableRow(fault, f"the response has {len(text)} characters: {text[-40:]!r}")
    return (LabelledResponse(text, is_correct, labelled_by, teacher),)
