"""What a removal says, boilerplate and the stop list, open-r1's way, several processes."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from klearlib.curation import overlap_worker
from klearlib.curation.overlap import OverlapIndex, Removal

PHRASE = "where m and n are relatively prime positive integers. Find m + n."
ITEMS = {
    "aime": [
        ("1", f"A cube of side three has a chance of \\frac{{m}}{{n}}, {PHRASE}"),
        ("2", f"Let the ratio of both areas be equal to m / n, {PHRASE}"),
        ("3", "Six chess players meet in a hall and each of them plays two games"),
    ],
    "hmmt": [("1", f"Ann flips a fair coin until she has seen three heads: m/n, {PHRASE}")],
}


def test_a_removal_names_benchmark_item_and_ngram():
    index = OverlapIndex(ITEMS)
    prompts = [
        "There were six chess players: meet in a hall and all of them, say",
        "In Six chess players meet in a hall and each of them plays what",
        "nothing of this kind",
    ]
    assert index.removals(prompts) == [
        None,
        Removal("aime", "3", "six chess players meet in a hall and each", 1, False),
        None,
    ]
    assert index.num_items == 4


def test_boilerplate_is_what_several_items_hold():
    index = OverlapIndex(ITEMS)
    first = "where m and n are relatively prime positive integers"
    clean, copied = index.removals(
        [
            f"The volume is m/n, {PHRASE}",
            f"A cube of side three has a chance of \\frac{{m}}{{n}}, {PHRASE}",
        ]
    )
    assert clean == Removal("aime", "1", "m n where m and n are relatively prime", 3, True)
    # The copy shares the boilerplate as well, but also words of its own.
    assert copied.num_items == 1 and not copied.is_boilerplate
    assert copied.ngram == "a cube of side three has a chance of"
    assert (first, 3) in index.common_ngrams(more_than=2)
    assert index.common_ngrams(more_than=3) == []


def test_the_stop_list_takes_what_more_than_k_items_hold():
    prompt = f"The volume is m/n, {PHRASE}"
    for k, is_kept in ((1, True), (2, True), (3, False)):
        index = OverlapIndex(ITEMS, stop_more_than=k)
        assert (index.removals([prompt]) == [None]) is is_kept
        assert index.num_stopped == len(index.common_ngrams(more_than=k))
        assert index.removals([ITEMS["hmmt"][0][1]])[0].benchmark == "hmmt"
    assert OverlapIndex(ITEMS).num_stopped == 0
    total = OverlapIndex(ITEMS).num_ngrams
    stopping = OverlapIndex(ITEMS, stop_more_than=2)
    assert stopping.num_ngrams + stopping.num_stopped == total


def test_an_item_whose_ngrams_are_all_stopped_still_removes_its_copies():
    items = {"b": [(str(i), f"{i} one two three four five six seven") for i in "ab"]}
    items["b"].append(("c", "one two three four five six seven"))
    index = OverlapIndex(items, n=7, stop_more_than=2)
    assert index.removals(["One two three four five six seven?"])[0].item_id == "c"
    assert index.removals(["one two three four five six seven eight"]) == [None]


def test_items_of_equal_words_count_once():
    text = "Six chess players meet in a hall and each of them plays two games"
    index = OverlapIndex({"a": [("1", text), ("2", text.upper())], "b": [("9", f"$ {text} $")]})
    removal = index.removals([text])[0]
    assert (index.num_items, removal.num_items, removal.is_boilerplate) == (1, 1, False)
    assert (removal.benchmark, removal.item_id) == ("a", "1")


def test_templates_are_cut_out_of_both_sides():
    template = "Solve this for me and give only the number as your very last word"
    prompts = [f"{template}: what is two plus two", f"{template}: six chess players meet"]
    items = {"b": [("1", f"What is two plus two? {template}.")]}
    assert all(OverlapIndex(items).removals(prompts))
    cut = OverlapIndex(items, templates=[template]).removals(prompts)
    assert cut == [Removal("b", "1", "what is two plus two", 1, False), None]


def open_r1(prompts: list[str], documents: list[str], n: int) -> list[bool]:
    """Lower case, words between blanks, any shared n-gram."""

    def ngrams(text: str) -> set[str]:
        words = text.lower().split()
        return {" ".join(words[i : i + n]) for i in range(len(words) - n + 1)}

    known = set().union(*map(ngrams, documents))
    return [not known.isdisjoint(ngrams(prompt)) for prompt in prompts]


@pytest.mark.parametrize("n", [2, 5, 8])
def test_mode_whitespace_is_the_rule_of_open_r1(n):
    draw = random.Random(n)
    words = ["a", "A", "b,", "b", "c.", "\\boxed{}", "é", "e\u0301", "ﬁ", "x\u200by", "<p>", "答案"]
    words = words[: 4 + 8 * (n < 4)]

    def text() -> str:
        return "".join(w + draw.choice(" \n\u00a0\t") for w in draw.choices(words, k=3 * n))

    documents, prompts = [text() for _ in range(4)], [text() for _ in range(300)]
    prompts += [documents[0].upper(), "a b"]
    documents.append("a b")  # shorter than n: open-r1 does not find it
    index = OverlapIndex({"d": [("", document) for document in documents]}, n=n, mode="whitespace")
    expected = open_r1(prompts, documents, n)
    assert [removal is not None for removal in index.removals(prompts)] == expected
    assert 0.02 < sum(expected) / len(expected) < 0.98


def test_mode_whitespace_keeps_instructions_and_glued_signs():
    tail = "Please reason step by step, and put your final answer within \\boxed{}."
    index = OverlapIndex({"b": [("1", f"What is it? {tail}")]}, mode="whitespace")
    found = index.removals([f"Who is he? {tail}", tail.replace(",", " ,")])
    assert found[0].ngram == "please reason step by step, and put your final" and found[1] is None


@pytest.fixture(scope="module")
def many() -> list[str]:
    draw = random.Random(1)
    texts = [" ".join(draw.choices(["so", "it", "is", "über", "x"], k=12)) for _ in range(5000)]
    for place in range(0, 5000, 97):
        texts[place] += " " + ITEMS["aime"][place % 3][1]
    return texts


@pytest.mark.parametrize("workers", [2, 3])
def test_processes_change_nothing(many, workers):
    index = OverlapIndex(ITEMS, stop_more_than=2)
    alone = index.removals(many)
    assert sum(removal is not None for removal in alone) == 52
    assert list(index.stream(iter(many), workers=workers)) == alone
    assert index.removals([], workers=workers) == []


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
               .read_text().split())  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_outlives_its_search(many, monkeypatch):
    before = children()
    index = OverlapIndex(ITEMS)
    stream = index.stream(many, workers=2)
    assert next(stream).benchmark == "aime"
    started = children() - before
    assert len(started) == 2
    stream.close()
    assert children() == before
    with pytest.raises(ValueError, match="a prompt must be a text, got int"):
        index.removals([*many, 7], workers=2)
    assert children() == before
    stream = index.stream(many * 5, workers=2)
    next(stream)
    for pid in children() - before:
        os.kill(int(pid), signal.SIGKILL)
    with pytest.raises(ValueError, match="ended with code -9"):
        list(stream)
    assert children() == before


def test_a_stream_is_read_as_it_is_needed(many):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield many[read % len(many)]

    for workers in (1, 2):
        read = 0
        stream = OverlapIndex(ITEMS).stream(endless(), workers=workers)
        for _ in range(10):
            next(stream)
        stream.close()
        assert read <= (10 if workers == 1 else 10 * 2048)


def test_a_script_without_a_main_guard_and_with_threads_may_use_processes(tmp_path):
    script = tmp_path / "search.py"
    script.write_text(
        "import threading, time, sys\n"
        "threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n"
        "from klearlib.curation.overlap import OverlapIndex\n"
        "from klearlib.curation.coverage import k_center_greedy\n"
        "index = OverlapIndex({'b': [('1', 'a b c')]})\n"
        "k_center_greedy([[0], [1]], 2)\n"
        "print(index.removals(['A, b; c', 'a b'] * 3000, workers=2).count(None))\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    root = Path(overlap_worker.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("3000\n", "")
