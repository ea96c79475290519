"""Data sets of problems with sampled reasoning or written solutions, for SFT."""

from __future__ import annotations

from klearlib.data.declaration import data_set
from klearlib.data.marks import THINK_CLOSE, THINK_OPEN, last_boxed
from klearlib.data.rows import Row, UnusableRow, message_texts
from klearlib.records import LabelledResponse, Problem, SourceRow

R1, QWQ = "DeepSeek-R1", "QwQ-32B"


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
    text: str, *, teacher: str = "", is_correct: bool | None = None
) -> tuple[LabelledResponse, ...]:
    """The response of a row that has one; a teacher's must think. UnusableRow: see
    `thought_fault`."""
    fault = thought_fault(text, must_think=bool(teacher))
    if fault:
        raise UnusableRow(fault, f"the response has {len(text)} characters: {text[-40:]!r}")
    return (LabelledResponse(text, is_correct, teacher),)


@data_set(
    "open-r1/OpenR1-Math-220k",
    "math",
    "apache-2.0",
    "uuid problem answer generations is_reasoning_complete correctness_math_verify "
    "correctness_llama",
    config="default",
    optional="problem_type",
    has_ids=True,
)
def openr1_math(row: Row) -> SourceRow:
    """A problem with 2 to 4 responses of DeepSeek-R1 and a label for each.

    A response is correct where math-verify says so, or else where Llama does: the authors asked
    Llama about the problems that math-verify could not settle, so ``correctness_llama`` is null for
    most rows. A null label stays unknown. Responses that never ended are dropped.
    """
    row.own_id("uuid")
    question = row.question("problem")
    texts = row.items("generations", str)
    if not texts:
        raise UnusableRow("no_response", "generations is empty")
    by_math_verify, by_llama, are_complete = (
        _labels(row, column, len(texts))
        for column in ("correctness_math_verify", "correctness_llama", "is_reasoning_complete")
    )
    responses, dropped = [], []
    for text, math_verify, llama, complete in zip(
        texts, by_math_verify, by_llama, are_complete, strict=True
    ):
        fault = thought_fault(text, must_think=True)
        if fault is None and complete is False:
            fault = "unclosed_think"
        if fault:
            dropped.append(fault)
            continue
        is_correct = math_verify if math_verify or llama is None else llama
        responses.append(LabelledResponse(text, is_correct, R1))
    if not responses:
        raise UnusableRow(dropped[0], f"none of {len(texts)} responses is complete")
    answer, family = row.answer("answer"), row.text("problem_type", optional=True)
    problem = Problem(row.id, question, answer, family=family)
    return SourceRow(problem, tuple(responses), tuple(dropped))


def _labels(row: Row, column: str, num_responses: int) -> list[bool | None]:
    labels = row.items(column, bool | None) or [None] * num_responses
    if len(labels) != num_responses:
        message = f"{column} has {len(labels)} labels for {num_responses} responses"
        raise UnusableRow("uneven_labels", message)
    return labels


@data_set("open-thoughts/OpenThoughts3-1.2M", "both", "apache-2.0", "domain conversations")
def openthoughts3(row: Row) -> SourceRow:
    """``conversations`` of a human and QwQ-32B. `Problem.family` is ``domain``."""
    pairs = message_texts(row.value("conversations"), role="from", text="value")
    roles = [role for role, _ in pairs]
    if roles == ["human"]:
        raise UnusableRow("no_response", "conversations has only the human turn")
    if roles != ["human", "gpt"]:
        raise UnusableRow("unknown_format", f"conversations must be human, then gpt, got {roles}")
    (_, question), (_, response) = pairs
    question = question.strip()
    row.hash_id(question)
    if not question:
        raise UnusableRow("no_problem", "the human turn is empty")
    problem = Problem(row.id, question, family=row.text("domain"))
    return SourceRow(problem, only_response(response, teacher=QWQ))


@data_set("nvidia/AceReason-1.1-SFT", "both", "cc-by-4.0", "category input output")
def acereason_sft(row: Row) -> SourceRow:
    """``input`` and ``output`` of DeepSeek-R1; `Problem.family` is ``category``."""
    question, response = row.asked("input"), row.text("output")
    problem = Problem(row.id, question, family=row.text("category"))
    return SourceRow(problem, only_response(response, teacher=R1))


@data_set("AI-MO/NuminaMath-CoT", "math", "apache-2.0", "source problem solution")
def numinamath_cot(row: Row) -> SourceRow:
    r"""The answer is the last ``\boxed{}`` of the solution, which is the response, judged by no
    one."""
    question, solution = row.asked("problem"), row.text("solution")
    problem = Problem(row.id, question, boxed_answer(solution), family=row.text("source"))
    return SourceRow(problem, only_response(solution))


@data_set(
    "AI-MO/NuminaMath-1.5",
    "math",
    "apache-2.0",
    "problem solution answer problem_type question_type problem_is_valid solution_is_valid",
)
def numinamath_1_5(row: Row) -> SourceRow:
    """Problem, solution, answer, and the authors' own word on both."""
    question, solution = row.asked("problem"), row.text("solution")
    for what in ("problem", "solution"):
        word = row.text(f"{what}_is_valid")
        if word != "Yes":
            raise UnusableRow(f"invalid_{what}", f"{what}_is_valid is {word!r}")
    if row.text("question_type") == "proof":
        raise UnusableRow("proof", "question_type is proof")
    answer = row.answer("answer")
    if answer.lower() in ("proof", "notfound"):
        reason = "proof" if answer.lower() == "proof" else "no_answer"
        raise UnusableRow(reason, f"answer is {answer!r}")
    problem = Problem(row.id, question, answer, family=row.text("problem_type"))
    return SourceRow(problem, only_response(solution, is_correct=True))


@data_set(
    "nvidia/OpenCodeReasoning",
    "code",
    "cc-by-4.0",
    "input output source license",
    config="split_0",
    split="split_0",
)
def opencodereasoning(row: Row) -> SourceRow:
    """``input`` and ``output`` of DeepSeek-R1; the licence is the row's. Rows of config ``split_1``
    have "-" as input: their questions are rows of TACO and APPS, which are not looked up."""
    question = row.text("input").strip()
    row.hash_id(question)
    if question in ("", "-"):
        raise UnusableRow("no_problem", f"input is {question!r}")
    problem = Problem(row.id, question, family=row.text("source"))
    responses = only_response(row.text("output"), teacher=R1)
    return SourceRow(problem, responses, licence=row.text("license"))
