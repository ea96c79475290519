"""Data sets of maths problems with an answer: for RL, for filters, and the contests' benchmarks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from klearlib.data.declaration import data_set
from klearlib.data.reasoning import boxed_answer, only_response, thought_fault
from klearlib.data.rows import Row, UnusableRow, gold_text, is_null, message_texts, parsed
from klearlib.records import LabelledResponse, Problem, SourceRow

_TRUTH = "reward_model.ground_truth"


@data_set("nvidia/AceReason-Math", "math", "cc-by-4.0", "problem answer")
def acereason_math(row: Row) -> SourceRow:
    """Problem and answer."""
    question = row.asked("problem")
    return SourceRow(Problem(row.id, question, row.answer("answer")))


@data_set(
    "agentica-org/DeepScaleR-Preview-Dataset", "math", "mit", "problem answer", optional="solution"
)
def deepscaler(row: Row) -> SourceRow:
    """Problem and answer; solutions, which nobody judged, are often empty."""
    question = row.asked("problem")
    problem = Problem(row.id, question, row.answer("answer"))
    solution = row.text("solution", optional=True)
    if not solution.strip():
        return SourceRow(problem)
    if fault := thought_fault(solution, must_think=False):
        return SourceRow(problem, dropped=(fault,))
    return SourceRow(problem, (LabelledResponse(solution),))


@data_set("Skywork/Skywork-OR1-RL-Data", "math", "unknown", "prompt reward_model", split="math")
def skywork_or1_math(row: Row) -> SourceRow:
    """A prompt of messages, and as ``reward_model.ground_truth`` the JSON list of the golds."""
    prompt = row.user_prompt("prompt")
    row.hash_id(prompt)
    golds = parsed(gold_text(row.truth(), _TRUTH), _TRUTH)
    golds = golds if isinstance(golds, list) else [golds]
    golds = [gold for gold in golds if not isinstance(gold, str) or gold.strip()]
    texts = tuple(gold_text(gold, _TRUTH) for gold in golds)
    if not texts:
        raise UnusableRow("no_answer", f"{_TRUTH} is an empty list")
    answer = texts[0] if len(texts) == 1 else texts
    return SourceRow(Problem(row.id, prompt, answer))


@data_set(
    "Kwai-Klear/KlearReasoner-MathSub-30K",
    "math",
    "apache-2.0",
    "prompt reward_model",
    hub_file="train_math_30K.json",
)
def klear_math(row: Row) -> SourceRow:
    """A prompt of messages and ``reward_model.ground_truth``."""
    prompt = row.user_prompt("prompt")
    row.hash_id(prompt)
    return SourceRow(Problem(row.id, prompt, gold_text(row.truth(), _TRUTH)))


@data_set("openai/gsm8k", "math", "mit", "question answer", config="main")
def gsm8k(row: Row) -> SourceRow:
    """The answer stands behind the last ``####`` of ``answer``, whose whole text, by people, is the
    response; a dollar sign and the thousands' commas of 45 answers go."""
    question, solution = row.asked("question"), row.text("answer")
    _, mark, answer = solution.rpartition("####")
    answer = answer.strip().replace(",", "").removeprefix("$")
    if not mark or not answer:
        raise UnusableRow("no_answer", "answer has nothing after ####")
    if not re.fullmatch(r"-?[0-9]*\.?[0-9]+", answer):
        raise UnusableRow("unknown_format", f"no number after ####: {answer!r}")
    responses = only_response(solution, is_correct=True)
    return SourceRow(Problem(row.id, question, answer), responses)


@data_set("rows", "math", "unknown", "problem|question|prompt answer", optional="response")
def rows(row: Row) -> SourceRow:
    r"""Problems of one's own: a question and its answer, which may stand in a box or, as GSM8K's,
    behind the last ``####`` of a solution; with a ``response``, what SFT may learn of it."""
    names = ("problem", "question", "prompt")
    question = row.asked(next(filter(row.columns.get, names), names[0]))
    answer = row.answer("answer")
    if "\\boxed" in answer:
        answer = boxed_answer(answer)
    elif "####" in answer:
        answer = answer.rpartition("####")[2].strip()
        if _THOUSANDS.fullmatch(answer):  # and no tuple, set or interval
            answer = answer.replace(",", "")
    if not answer:
        raise UnusableRow("no_answer", "answer has nothing after ####")
    response = row.text("response", optional=True)
    learnt = only_response(response) if response else ()
    return SourceRow(Problem(row.id, question, answer), learnt)


_THOUSANDS = re.compile(r"[-$]*\d{1,3}(,\d{3})+(\.\d+)?")


_CONTEST = "problem|question|messages answer|solution|meta"
_CONTEST_IDS = {"optional": "id problem_idx", "has_ids": True}


def _contest(row: Row) -> SourceRow:
    r"""A problem of AIME or HMMT, in the columns of any of its copies.

    The copies on the hub have problem (or question) and answer; the released evaluation files
    have ``messages`` and ``solution`` ("\boxed{...}") or a mapping ``meta`` of both. The solution
    is looked at only where there is no column ``answer``, and must have a box or be one word. An
    answer in a box is taken out of it; of whole numbers the leading zeros ("073") go.
    """
    meta = row.value("meta", optional=True)
    row.columns = fields = {**row.columns, **(meta if isinstance(meta, Mapping) else {})}
    if fields.get("problem") is None and fields.get("question") is not None:
        fields["problem"] = fields["question"]
    if fields.get("problem") is None and fields.get("messages") is not None:
        pairs = message_texts(fields["messages"])
        fields["problem"] = "\n\n".join(text for role, text in pairs if role == "user")
    question = row.question("problem")
    ids = [c for c in ("unique_id", "problem_idx", "id") if not is_null(fields.get(c))]
    if ids:
        row.own_id(ids[0])
    else:
        row.hash_id(question)
    column = "answer" if "answer" in fields else "solution"
    answer = row.answer(column)
    if "\\boxed" in answer:
        answer = boxed_answer(answer)
    elif column == "solution" and len(answer.split()) > 1:
        raise UnusableRow("no_answer", "solution is a text and has no answer in a box")
    return SourceRow(Problem(row.id, question, str(int(answer)) if answer.isdecimal() else answer))


aime_2024 = data_set("HuggingFaceH4/aime_2024", "math", "unknown", _CONTEST, **_CONTEST_IDS)(
    _contest, "aime_2024"
)
aime_2025 = data_set(
    "yentinglin/aime_2025", "math", "unknown", _CONTEST, config="default", **_CONTEST_IDS
)(_contest, "aime_2025")
hmmt_feb_2025 = data_set(
    "MathArena/hmmt_feb_2025", "math", "cc-by-nc-sa-4.0", _CONTEST, **_CONTEST_IDS
)(_contest, "hmmt_feb_2025")
