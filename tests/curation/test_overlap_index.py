"""What a removal says, boilerplate and the stop list, and what readers of code problems write
around them, which is nobody's contamination."""

from raw_rows import ROWS

from klearlib.curation.overlap import OverlapIndex, Removal, contaminated
from klearlib.data.code import prompt_of
from klearlib.data.sources import read_source

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


def all_forms(words: list[str], name: str, number: int) -> list[str]:
    """The prompt of a problem that asks this, of every data set that adds words of its own."""
    question = " ".join(words)
    starter = f"def {name}({name}_a, {name}_b): {name}_c"
    prompts = [
        prompt_of(question, starter=s, function=f) for s in ("", starter) for f in (None, name)
    ]
    stub = f"def {name}({name}_x):\n    '''{question}'''\n"
    test = f"def check(candidate):\n    assert candidate({number}) == {number}\n"
    rows = {
        "codeforces": {"description": question, "examples": [], **NO_PARTS},
        "humaneval": {"task_id": name, "prompt": stub, "entry_point": name, "test": test},
        "mbpp": {
            "text": question,
            "code": f"def {name}(x):\n    return x",
            "test_list": [f"assert {name}({number}) == {number}"],
        },
    }
    for source, row in rows.items():
        (given,) = read_source(source, [ROWS[source] | row])
        prompts.append(given.problem.prompt)
    return prompts


NO_PARTS = dict.fromkeys(["input_format", "output_format", "note"])
ONE = all_forms([f"alpha{i}" for i in range(12)], "aleph", 3)
TWO = all_forms([f"beta{i}" for i in range(12)], "bet", 4)


def test_different_problems_share_no_two_words_in_a_row():
    index = OverlapIndex({"b": [(str(i), p) for i, p in enumerate(ONE)]}, n=2)
    assert index.removals(TWO) == [None] * len(TWO)
    assert index.removals(ONE).count(None) == 0
    told = OverlapIndex({"b": [("1", ONE[0])]}, n=2, templates=())
    assert told.removals(TWO[:1])[0].ngram, "without the templates the request is shared"


def test_the_same_problem_is_found_in_all_forms():
    for item in ONE:
        assert contaminated(ONE, [item]).all()
    assert not contaminated(TWO, ONE).any()


def test_text_that_only_begins_like_a_request_is_not_cut():
    item = "Put the whole program on a tape of nine cells, and with its head on the first"
    assert contaminated([f"So: {item}."], [item]).all()
