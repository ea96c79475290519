"""What a removal says, boilerplate and the stop list, open-r1's way, several processes."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import klearlib
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


def test_the_stop_list_takes_what_more_than_k_items_hold():
    prompt = f"The volume is m/n, {PHRASE}"
    for k, is_kept in ((1, True), (2, True), (3, False)):
        index = OverlapIndex(ITEMS, stop_more_than=k)
        assert (index.removals([prompt]) == [None]) is is_kept
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


def children() -> set[int]:
    """The searching processes, without Python's tracker of semaphores, which stays."""
    return {process.pid for process in multiprocessing.active_children()}


def test_no_process_outlives_its_search(many):
    index = OverlapIndex(ITEMS)
    stream = index.stream(many, workers=2)
    assert next(stream).benchmark == "aime"
    assert len(children()) == 2
    stream.close()
    assert not children()
    with pytest.raises(ValueError, match="a prompt must be a text, got int"):
        index.removals([*many, 7], workers=2)
    assert not children()
    stream = index.stream(many * 5, workers=2)
    next(stream)
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ValueError, match="was killed: if memory was short, take fewer workers"):
        list(stream)
    assert not children()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_searching_processes_end_with_a_killed_caller(tmp_path):
    script = tmp_path / "search.py"
    script.write_text(
        "import multiprocessing, time\n"
        "from klearlib.curation.overlap import OverlapIndex\n"
        "if __name__ == '__main__':\n"
        "    stream = OverlapIndex({'b': [('1', 'a b c')]}).stream(['a'] * 9999, workers=2)\n"
        "    next(stream)\n"
        "    print(*(p.pid for p in multiprocessing.active_children()), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as caller:
        pids = caller.stdout.readline().split()
        caller.kill()
    assert len(pids) == 2
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
        time.sleep(0.1)
    pytest.fail("a searching process outlives its caller")


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
        assert read <= (10 if workers == 1 else 2 * 2048)


def test_a_script_with_threads_may_use_processes(tmp_path):
    script = tmp_path / "search.py"
    script.write_text(
        "import threading, time, sys\n"
        "from klearlib.curation.overlap import OverlapIndex\n"
        "from klearlib.curation.coverage import k_center_greedy\n"
        "if __name__ == '__main__':\n"
        "    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n"
        "    index = OverlapIndex({'b': [('1', 'a b c')]})\n"
        "    k_center_greedy([[0], [1]], 2)\n"
        "    print(index.removals(['A, b; c', 'a b'] * 3000, workers=2).count(None))\n"
        "    assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(klearlib.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("3000\n", "")
