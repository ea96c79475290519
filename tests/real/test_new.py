"""`klear new`: a profile for a model and rows of one's own, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import datasets
import pytest
import real_project
import yaml

from klearlib.cli import main
from klearlib.errors import ParameterError
from klearlib.evaluate.record_files import load_record
from klearlib.experiments.benchmarks import counterparts, decided_on, deciding, named
from klearlib.experiments.catalogue import check, experiment_of, stages_of
from klearlib.experiments.experiment import runs_dir
from klearlib.experiments.origins import origin
from klearlib.params import load, load_profile, profiles
from klearlib.real import assets
from klearlib.real.data import link_data
from klearlib.real.model import link_model
from klearlib.run.folder import RunFolder
from klearlib.run.stage import is_done, with_inputs

REPOSITORY = Path(__file__).resolve().parents[2]
ARGUMENTS = {"--model": "models/tiny", "--problems": "mine.jsonl", "--benchmark": "test.jsonl"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    real_project.write_model(folder)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch, model):
    (tmp_path / "params").mkdir()
    (tmp_path / "notebooks").mkdir()
    shutil.copytree(model, tmp_path / "models" / "tiny")
    write(tmp_path / "mine.jsonl", "a", 40)
    write(tmp_path / "test.jsonl", "b", 5)
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, word, count, **row):
    rows = [
        {"question": f"{word}{n} and {n} {word}s make how many {word}?", "answer": str(2 * n)} | row
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def new(*more: str, **changes) -> int:
    given = ARGUMENTS | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return main(["new", "mine", *(word for pair in given.items() for word in pair), *more])


def test_two_files_of_rows_and_a_model_folder_make_a_profile_of_their_own(project, capsys):
    assert new() == 0 and "klear run --profile mine" in capsys.readouterr().out
    real = load("mine", "real")
    assert (real.num_layers, real.max_positions, real.tie_word_embeddings) == (2, 512, True)
    assert real.max_prompt_tokens + real.max_new_tokens == 512 and real.num_validation == 8
    assert real.benchmarks["test"]["size"] == 5
    for notebook in ("05_clipping", "06_alpha_sweep"):
        params = check(notebook, load_profile("mine", notebook))
        stages = with_inputs(stages_of(notebook, params).values()).values()
        assert {stage.name for stage in stages} <= {
            *("model", "data", "benchmarks", "curate", "real_world", "evaluate", "rl")
        }
        models = {stage.arguments["model"] for stage in stages if stage.name == "model"}
        assert len(models) == 1  # RL starts from the model as it comes
    start = origin("mine").start("math")
    assert start.benchmarks == {"test": 5} and params.num_problems == 8 * params.mini_batch_problems


def test_examples_are_learnt_before_rl(project, capsys):
    (project / "plain.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}\n')
    assert new(examples="plain.jsonl") == 1
    assert "no row has a response" in capsys.readouterr().err
    rows = [
        {"question": f"What is {n} + {n}?", "answer": str(2 * n), "response": f"It is {2 * n}."}
        for n in range(100, 140)
    ]
    (project / "examples.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert new("--max-new-tokens", "6", examples="examples.jsonl") == 0
    real = load("mine", "real")
    assert (*real.maths_sources,) == ("examples",) and (real.sft_epochs, real.sft_batch) == (4, 5)
    params = check("05_clipping", load_profile("mine", "05_clipping"))
    stages = with_inputs(stages_of("05_clipping", params).values()).values()
    (sft,) = [stage for stage in stages if stage.name == "sft"]
    assert {id(s.inputs["sft"]) for s in stages if s.name == "rl"} == {id(sft)}
    for stage in with_inputs([sft]).values():
        real_project.run_here(stage)
    card = json.loads((sft.inputs["examples"].folder(runs_dir()) / "card.json").read_text())
    assert card["num_kept"] == 40


@pytest.mark.parametrize(
    "notebook", ["05_clipping", pytest.param("06_alpha_sweep", marks=pytest.mark.slow)]
)
def test_its_runs_have_every_table_and_figure_of_their_notebook(project, notebook):
    assert new("--max-new-tokens", "6") == 0
    values = load_profile("mine", notebook) | {"seeds": [0], "num_steps": 1, "eval_every": 1}
    e = experiment_of(notebook)(check(notebook, values))
    for stage in e.stages():
        real_project.run_here(stage)
    cells = (REPOSITORY / "notebooks" / f"{notebook}.ipynb").read_text()
    shown = re.findall(r'e\.(table|figure)\(\\"(\w+)', cells)
    assert len(shown) >= 3
    for kind, name in shown:
        assert getattr(e, kind)(name) is not None
    assert {v.verdict for v in e.verdicts()} <= {"not run", "reproduced"}


def test_a_reward_function_of_ones_own_is_what_rl_and_scores_go_by(project):
    source = (
        "def judge(response, problem):\n    return len(response) % 2 / 4, len(response) % 2 == 1\n"
    )
    (project / "mine.py").write_text(source)
    assert new("--max-new-tokens", "6", "--reward", "mine.py:judge") == 0
    values = load_profile("mine", "05_clipping") | {"seeds": [0], "num_steps": 1, "rules": ["gppo"]}
    params = check("05_clipping", values)
    assert params.options["reward_function"] == {"name": "judge", "source": source}
    (project / "mine.py").unlink()  # the run has its text
    (run,) = experiment_of("05_clipping")(params).stages()
    folder = real_project.run_here(run)
    (line,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert 0 < line["rollout/correct_rate"] < 1
    assert line["rollout/reward_mean"] == pytest.approx(line["rollout/correct_rate"] / 4)
    assert line["train/grad_norm"] > 0
    scores = load_record(folder / "evaluations" / "test-00001.npz")
    assert 0 < scores.correct.mean() < 1 and set(scores.reason.flat) == {"correct", "wrong"}


JUDGE = "def judge(response, problem):\n    return {reward}, True\n"


@pytest.mark.parametrize(
    ("factors", "rate", "words"),
    [
        ((1, 1000, 10000), 0.01, "smallest with 1 %"),
        ((0.1, 1), 1e-5, "largest, because none has 1 %"),
    ],
)
def test_a_probe_writes_a_rate_at_which_tokens_leave_the_clip_range(
    project, monkeypatch, capsys, factors, rate, words
):
    monkeypatch.setattr("klearlib.suite.probe.FACTORS", factors)
    monkeypatch.setattr("klearlib.run.pool.run_stages", run_here)
    (project / "mine.py").write_text(JUDGE.format(reward="len(response) % 2"))
    assert new("--max-new-tokens", "6", "--reward", "mine.py:judge", "--probe") == 0
    told = capsys.readouterr().out.splitlines()
    assert f"learning rate {rate:.1e}, the {words} of tokens outside" in "".join(told)
    assert "".join(told).count(" % at ") == len(factors)
    assert load_profile("mine", "05_clipping")["learning_rates"] == [rate]
    assert load_profile("mine", "06_alpha_sweep")["learning_rate"] == rate
    text = (project / "params/mine/05_clipping.yaml").read_text()
    assert f"# The learning rate is the {words} of tokens outside the clip range (" in text
    assert not [*(project / "results/runs/rl").iterdir()]
    assert not [*(project / "results/runs").glob("*/*/evaluations/test-*")]


def run_here(stages, **_):
    for stage in stages:
        real_project.run_here(stage)


def test_a_third_benchmark_counts_and_none_takes_the_name_of_the_worlds_files(project):
    for name, word in (("more", "c"), ("validation", "d")):
        write(project / f"{name}.jsonl", word, 7)
    assert new("--benchmark", "more.jsonl", "--benchmark", "validation.jsonl") == 0
    assert list(counterparts("mine", "math")) == ["test", "more", "validation_test"]
    start = origin("mine").start("math")
    assert list(start.benchmarks) == ["test", "more", "validation_test"]


@pytest.mark.parametrize(
    ("benchmarks", "words"),
    [
        ({"train": {"size": 5, "domain": "math"}}, "train: a name has only letters"),
        ({"math-hard": {"size": 5, "domain": "math"}}, "math-hard: a name has only letters"),
        ({"aime_2025": {}}, "curves of math are scored on aime_2024"),
    ],
)
def test_benchmarks_that_no_run_could_use_are_refused(project, benchmarks, words):
    assert new() == 0
    path = project / "params" / "mine" / "real.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"benchmarks": benchmarks}))
    with pytest.raises(ParameterError, match=words):
        load("mine", "real")


def test_an_edited_model_or_data_set_is_another_stage(project, monkeypatch):
    """Under the same path: a run that is done came from the one before."""
    monkeypatch.setattr(assets, "_REMEMBERED", 0)
    assert new() == 0

    def keys():
        params = check("05_clipping", load_profile("mine", "05_clipping"))
        return {stage.key for stage in stages_of("05_clipping", params).values()}

    before = keys()
    assert keys() == before and (project / "results/runs/.digests.json").is_file()
    weights = project / "models" / "tiny" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + b"x")
    assert keys() != before
    weights.write_bytes(content)
    assert keys() == before
    write(project / "mine.jsonl", "a", 41)
    assert keys() != before


def test_a_project_that_was_moved_finds_its_stages_again(project, monkeypatch, tmp_path_factory):
    assert new() == 0

    def stages():
        params = check("05_clipping", load_profile("mine", "05_clipping"))
        return stages_of("05_clipping", params)

    before = stages()
    links = [stage for stage in before.values() if stage.name in ("model", "data")]
    for stage in links:
        folder = RunFolder(stage.folder(runs_dir()))
        link = link_model if stage.name == "model" else link_data
        link(folder, {}, **stage.arguments)
        folder.finish()
    moved = tmp_path_factory.mktemp("moved") / "project"
    project.rename(moved)
    monkeypatch.setenv("KLEAR_ROOT", str(moved))
    monkeypatch.chdir(moved)
    assert stages().keys() == before.keys()
    assert len(links) == 3 and all(is_done(stage, runs_dir()) for stage in links)


@pytest.mark.parametrize("name", ["2025", "null", "true"])
def test_a_file_may_have_the_name_of_a_number(project, name):
    shutil.move(project / "test.jsonl", project / f"{name}.jsonl")
    assert new(benchmark=f"{name}.jsonl") == 0
    assert [*load("mine", "real").benchmarks] == [name]
    path = project / "params" / "mine" / "real.yaml"
    path.write_text(path.read_text().replace(f"'{name}': ", f"{name}: "))
    with pytest.raises(ParameterError, match="write it in quotes"):
        load("mine", "real")


def test_ones_own_benchmarks_stand_for_the_papers_in_their_order(project):
    write(project / "more.jsonl", "c", 7)
    assert new("--benchmark", "more.jsonl") == 0
    assert {name: about.paper for name, about in named("mine").items()} == {
        "test": "AIME 2024",
        "more": "AIME 2025",
    }
    assert deciding("C1", "mine", "math") == ["test"]
    assert deciding("C8", "mine", "math") == ["test", "more"]
    assert decided_on("C1", "mine", "math") == "Decided on test, which stands for AIME 2024"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "models/none"}, "models/none"),
        ({"problems": "none.jsonl"}, "no file or folder at none.jsonl"),
        ({"max_new_tokens": "600"}, "leaves"),
        (
            {"problems": "test.jsonl", "benchmark": "mine.jsonl"},
            "5 of 16 needed problems are left: 0 rows could not be read, 0 repeat",
        ),
        (
            {"benchmark": "mine.jsonl"},
            "0 repeat another's question, 40 share 9 words in a row with",
        ),
        ({"problems": "humaneval=mine.jsonl"}, "klear new is for mathematics"),
        ({"problems": "gsm9k=mine.jsonl"}, "did you mean 'gsm8k'"),
        ({"problems": "repeated.jsonl"}, "39 repeat another's question"),
        ({"problems": "three.jsonl"}, "1 of 16 needed problems are left: 2 rows could not be"),
        ({"benchmark": "three.jsonl"}, "three.jsonl: 2 of 3 rows could not be read (no_answer 2)"),
        ({"benchmark": "twice.jsonl"}, "has 1 duplicate problem ids"),
    ],
)
def test_what_cannot_work_is_one_line_and_leaves_nothing(project, capsys, changes, words):
    rows = (project / "test.jsonl").read_text().splitlines(keepends=True)
    (project / "twice.jsonl").write_text("".join([*rows, rows[0]]))
    row = json.loads((project / "mine.jsonl").read_text().splitlines()[0])
    repeated = (json.dumps(row | {"id": str(number)}) + "\n" for number in range(40))
    (project / "repeated.jsonl").write_text("".join(repeated))
    write(project / "three.jsonl", "c", 2, answer="")
    with (project / "three.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert new(**changes) in (1, 2)
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert not (project / "params" / "mine").exists()


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", b"", "cannot be loaded as a dense model (JSONDecodeError: "),
        ("tokenizer.json", None, "has no tokenizer: add the model's own"),
        ("chat.jinja", None, "no file with a chat template at "),
    ],
)
def test_a_model_at_fault_is_one_line(project, capsys, file, content, words):
    template = project / "models/tiny/chat.jinja"
    template.write_text("{{ messages[0].content }}")
    place = project / "models" / "tiny" / file
    if content is None:
        for each in place.parent.glob(f"{place.stem}*"):
            each.unlink()
    else:
        place.write_bytes(content)
    assert new(chat_template=str(template)) == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_rows_without_an_answer_are_refused_in_a_benchmark_and_counted_in_training(project, capsys):
    write(project / "test.jsonl", "b", 5, answer="")
    assert new() == 1 and "no_answer 5" in capsys.readouterr().err
    write(project / "test.jsonl", "b", 5)
    with (project / "mine.jsonl").open("a") as file:
        file.write(json.dumps({"question": "Why?", "answer": None}) + "\n")
    assert new() == 0
    assert "1 other rows could not be read" in (project / "params/mine/real.yaml").read_text()
    (project / "mine.jsonl").write_text('{"text": "no columns"}\n')
    shutil.rmtree(project / "params" / "mine")
    assert new() == 1
    assert "needs the column problem or question or prompt, answer" in capsys.readouterr().err


def test_a_model_without_chat_template_needs_one(project, capsys):
    real_project.write_model(project / "models" / "plain", chat_template=False)
    assert new(model="models/plain") == 1 and "--chat-template FILE" in capsys.readouterr().err
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (project / "chat.jinja").write_text(template)
    assert new(model="models/plain", chat_template="chat.jinja") == 0
    assert load("mine", "real").chat_template == "chat.jinja"


def test_a_hub_id_that_nobody_declared_is_what_is_fetched(project, monkeypatch):
    rows = [json.loads(line) for line in (project / "mine.jsonl").read_text().splitlines()]
    asked = []

    def load_dataset(name, *_, **how):
        asked.append(name)
        return datasets.Dataset.from_list(rows).to_iterable_dataset()

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert new(problems="someone/sums") == 0 and asked == ["someone/sums"]
    assert load("mine", "real").maths_problems["sums"]["hub_id"] == "someone/sums"


def test_a_name_that_is_taken_is_kept(project, capsys):
    assert new() == 0 and new() == 2
    assert "exists already" in capsys.readouterr().err


def test_a_profile_is_whole_or_absent(project, monkeypatch):
    before, written = profiles(), []

    def write(path, text):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        assert profiles() == before  # also after a kill that leaves what was written

    monkeypatch.setattr("klearlib.suite.new.write_text", write)
    assert new() == 130
    assert profiles() == before and len(list((project / "params").iterdir())) == len(before)


def test_a_profile_without_code_says_so_where_code_is_asked_for(project):
    assert new() == 0
    with pytest.raises(ParameterError, match="has no problems of code"):
        origin("mine").start("code")
