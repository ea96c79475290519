"""The paper's numbers, against values typed from its pages and evidence computed from its plots."""

import subprocess
import sys

import numpy as np
import pytest

from klearlib.paper import FIGURES, claim, claims, figure, table

PLOTTED_POINTS = {"2a": 72, "2b": 72, "2c": 720, "3a": 40, "3b": 200, "4": 39, "5a": 30, "5b": 142}


def curves(name):
    """[step, series], only the steps that all series have."""
    return figure(name).pivot(index="step", columns="series", values="value").dropna()


def test_there_are_132_cells_and_each_is_the_float_of_its_print():
    tables = [table(n) for n in range(1, 7)]
    assert [frame.size for frame in tables] == [55, 18, 9, 24, 16, 10]
    for frame in tables:
        for row, cells in frame.attrs["cells"].items():
            assert [float(text) for text in cells.values()] == frame.loc[row].tolist()
            assert list(cells) == frame.columns.tolist()


@pytest.mark.parametrize(
    ("n", "row", "column", "value"),
    [
        (1, "w/ 64K Inference Budget", "AIME2024 avg@64", 90.5),
        (1, "Klear-Reasoner-8B", "LCB V6 avg@8", 53.1),
        (1, "OpenReasoning-Nemotron-7B", "HMMT2025 avg@64", 63.5),
        (2, "AIME 2024", "Easy / Mixed", 40.22),
        (2, "LiveCodeBench V5", "Hard / Mixed", 26.88),
        (3, "AIME 2025", "QwQ-32B", 53.13),
        (4, "LiveCodeBench V5", "Top8", 19.89),
        (5, "LiveCodeBench V6", "Top2", 29.20),
        (6, "Starting Checkpoint", "AIME2025", 64.62),
    ],
)
def test_spot_values(n, row, column, value):
    assert table(n).loc[row, column] == value


def test_marks_are_kept():
    main = table(1).attrs
    assert main["cells"]["Qwen3-8B"]["AIME2024 avg@64"] == "76.0"
    assert ("POLARIS-4B-Preview", "AIME2025 avg@64") in main["underlined"]
    assert len(main["bold"]) == 5 and len(main["underlined"]) == 4 and len(main["dagger"]) == 9
    assert main["marks"]["w/ 64K Inference Budget"] == "club (64K)"
    assert table(4).attrs["bold"] == [
        ("AIME 2024", "Top1"),
        ("AIME 2025", "Top1"),
        ("LiveCodeBench V5", "Top1"),
        ("LiveCodeBench V6", "Top2"),
    ]


@pytest.mark.parametrize("n", [2, 3, 6])
def test_bold_is_the_best_of_its_group(n):
    frame = table(n)
    for row, column in frame.attrs["bold"]:
        if n == 2:
            group = frame.loc[row].filter(like=column.split(" / ")[0])
        elif n == 3:
            group = frame.loc[row]
        else:
            group = frame[column]
        assert frame.loc[row, column] == group.max()


@pytest.mark.parametrize(("name", "num_points"), PLOTTED_POINTS.items())
def test_curves_are_whole_and_on_the_grid_of_the_authors_rounding(name, num_points):
    frame = figure(name)
    assert frame.columns.tolist() == ["series", "step", "value"] and len(frame) == num_points
    assert not frame.duplicated(["series", "step"]).any()
    assert np.allclose(frame.value * 1000, (frame.value * 1000).round(), atol=1e-6)
    assert set(frame.series) == set(frame.attrs["keys"])


def test_bars_agree_with_the_main_table():
    bars = figure("1")
    assert bars.columns.tolist() == ["model", "benchmark", "value"] and len(bars) == 24
    names = {
        "AIME2024 (Avg@64)": "AIME2024 avg@64",
        "AIME2025 (Avg@64)": "AIME2025 avg@64",
        "LiveCodeBench V5 (Avg@8)": "LCB V5 avg@8",
        "LiveCodeBench V6 (Avg@8)": "LCB V6 avg@8",
    }
    ours = bars[bars.model == "Klear-Reasoner-8B"].set_index("benchmark").value
    printed = table(1).loc["w/ 64K Inference Budget"]
    for bar, column in names.items():
        assert abs(ours[bar] - printed[column]) <= 0.05


def test_every_figure_is_reachable_and_unknown_names_say_what_there_is():
    assert FIGURES == ("1", "2a", "2b", "2c", "3a", "3b", "4", "5a", "5b")
    assert all(len(figure(name)) for name in FIGURES)
    with pytest.raises(ValueError, match="'2' in the paper: there are 1, 2a, 2b, 2c, 3a"):
        figure("2")
    for n in (0, 7, "1", True, 1.0):
        with pytest.raises(ValueError, match="from 1 to 6"):
            table(n)
    with pytest.raises(ValueError, match="C1, C2"):
        claim("c99")


def test_callers_cannot_change_the_data_for_each_other():
    frame = table(6)
    frame.iloc[0, 0] = 0.0
    frame.attrs["cells"]["alpha = 0"]["AIME2024"] = "0"
    frame.attrs["bold"].clear()
    again = table(6)
    assert again.iloc[0, 0] == 73.51 and again.attrs["bold"]
    assert again.attrs["cells"]["alpha = 0"]["AIME2024"] == "78.13"


def test_import_and_claims_need_neither_pandas_nor_torch():
    code = (
        "import sys; import klearlib.paper as p; p.claims(); "
        "assert not {'pandas', 'torch', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The evidence of the claims, computed anew from the plotted points.


def above(name, a, b):
    c = curves(name)
    return int((c[a] > c[b]).sum()), int((c[a] == c[b]).sum()), len(c)


CLIP = "GRPO w/ Clip Higher"


def test_clipping_evidence():
    assert above("2a", "GPPO", CLIP) == (19, 1, 24)
    assert above("2a", "GPPO", "CISPO") == (19, 1, 24)
    assert above("2b", "GPPO", CLIP) == (17, 0, 24)
    assert above("2b", "GPPO", "CISPO") == (15, 0, 24)
    counts = {("C1", 0): 19, ("C1", 1): 19, ("C2", 0): 17, ("C2", 1): 15}
    for (claim_id, i), value in counts.items():
        number = claim(claim_id).paper[i]
        assert (number.value, number.of, number.unit) == (value, 24, "count")
    for claim_id, name, means in [
        ("C1", "2a", (0.7910, 0.8002, 0.8126)),
        ("C2", "2b", (0.5848, 0.5796, 0.5886)),
    ]:
        last = curves(name).tail(5).mean()[[CLIP, "CISPO", "GPPO"]]
        assert last.tolist() == pytest.approx(means, abs=5e-5)
        assert [n.value for n in claim(claim_id).paper[2:]] == pytest.approx(last.tolist())
    assert curves("2b").loc[100, [CLIP, "CISPO", "GPPO"]].tolist() == [0.567, 0.566, 0.565]


def test_grad_norm_evidence():
    norms = figure("2c")
    inside = norms.value.between(0.05, 0.08).mean()
    high = norms[norms.value > 0.1].groupby("series").size()
    assert inside == pytest.approx(0.964, abs=5e-4)
    numbers = [number.value for number in claim("C3").paper]
    assert numbers[0] == pytest.approx(inside)
    assert numbers[1:] == [high["GPPO"], high[CLIP], high.get("CISPO", 0)] == [5, 2, 0]


def test_reward_filter_and_advantage_evidence():
    assert above("3a", "Soft Reward", "Hard Reward") == (13, 4, 20)
    assert above("4", "Filter", "w/o Filter") == (16, 0, 19)
    assert above("5a", "adv=0 Filter", "w/o adv=0 Filter") == (13, 0, 15)
    values = {c.id: c.paper[0].value for c in claims() if c.paper}
    assert (values["C9"], values["C11"], values["C12"]) == (13, 16, 13)
    peaks = curves("3a").max()
    assert (peaks["Soft Reward"], peaks["Hard Reward"]) == (0.610, 0.592)
    final = curves("3a").loc[100]
    assert [n.value for n in claim("C9").paper[1:]] == final[
        ["Soft Reward", "Hard Reward"]
    ].tolist()
    lower = curves("4").query("Filter < `w/o Filter`").index.tolist()
    assert lower == [30, 50, 90]
    shown = figure("5b").query("series == 'adv=0 Filter'").value
    ends = [shown.head(10).mean(), shown.tail(10).mean()]
    assert [n.value for n in claim("C12").paper[1:3]] == pytest.approx(ends, abs=5e-4)


def distances(series):
    run = figure("3b").query("series == @series")
    return run.value - np.polyval(np.polyfit(run.step, run.value, 1), run.step)


def test_the_plotted_rewards_do_not_show_the_lower_variance():
    soft, hard = distances("Soft Reward"), distances("Hard Reward")
    spreads = [soft.std(ddof=0), hard.std(ddof=0), soft.abs().mean(), hard.abs().mean()]
    assert [number.value for number in claim("C10").paper] == pytest.approx(spreads, abs=5e-4)
    assert spreads[3] < spreads[2]
    assert [each.paper for each in claim("C10").comparisons] == [None], "unlike scales"


def test_the_plotted_rewards_are_not_steadier_with_the_filter():
    common = figure("5b").query("step <= 100")
    spreads = {}
    for series, run in common.groupby("series"):
        line = np.polyval(np.polyfit(run.step, run.value, 1), run.step)
        spreads[series] = (run.value - line).abs().mean()
    assert len(common) == 2 * 70
    shown = [spreads["adv=0 Filter"], spreads["w/o adv=0 Filter"]]
    assert [n.value for n in claim("C12").paper[3:]] == pytest.approx(shown, abs=5e-4)
    assert shown[0] > shown[1]
    assert [each.paper for each in claim("C21").comparisons] == [None]


COLUMNS = {
    "C4": (
        2,
        {
            "easy_wrong_0": "Easy / Only True",
            "easy_wrong_0.3": "Easy / Mixed",
            "hard_wrong_0": "Hard / Only True",
            "hard_wrong_0.3": "Hard / Mixed",
        },
    ),
    "C15": (
        2,
        {"overall_wrong_0": "Overall / Only True", "overall_wrong_0.3": "Overall / Mixed"},
    ),
    "C5": (3, {"weak": "QwQ-32B", "middle": "DeepSeek-R1-0120", "strong": "DeepSeek-R1-0528"}),
    "C6": (4, {f"top{k}": f"Top{k}" for k in (1, 2, 4, 6, 8, 10)}),
    "C7": (5, {f"top{k}": f"Top{k}" for k in (1, 2, 4, 6)}),
    "C8": (6, {f"alpha_{a}": f"alpha = {a}" for a in ("0", "0.05", "0.1", "0.2")}),
}


@pytest.mark.parametrize("claim_id", COLUMNS)
def test_differences_of_tables_are_recomputed(claim_id):
    n, names = COLUMNS[claim_id]
    frame = table(n).T if claim_id == "C8" else table(n)
    for comparison in claim(claim_id).comparisons:
        rows = [b.replace(" ", "") if claim_id == "C8" else b for b in comparison.benchmarks]
        a = frame.loc[rows, [names[arm] for arm in comparison.a]].mean().mean()
        b = frame.loc[rows, [names[arm] for arm in comparison.b]].mean().mean()
        assert comparison.paper == pytest.approx((a - b) / 100), comparison.name


@pytest.mark.parametrize(
    ("claim_id", "name"), [("C1", "2a"), ("C2", "2b"), ("C9", "3a"), ("C11", "4"), ("C12", "5a")]
)
def test_differences_of_figures_are_those_of_the_last_common_step(claim_id, name):
    series = {key: printed for printed, key in figure(name).attrs["keys"].items()}
    last = curves(name).iloc[-1]
    for comparison in claim(claim_id).comparisons:
        a, b = last[series[comparison.a[0]]], last[series[comparison.b[0]]]
        assert comparison.paper == pytest.approx(a - b), comparison.name


def test_numbers_quoted_from_tables_are_the_printed_ones():
    def percent(claim_id):
        return [round(100 * number.value, 4) for number in claim(claim_id).paper]

    assert percent("C4") == table(2).iloc[0, :4].tolist()
    assert percent("C5") == table(3).iloc[0].tolist()
    assert percent("C6") == table(4).iloc[0][["Top1", "Top2", "Top10"]].tolist()
    assert percent("C7") == table(5).loc["LiveCodeBench V5"].tolist()
    assert percent("C8") == table(6)["AIME2024"].tolist()[1:]
    rows = table(1).loc[["w/ 64K Inference Budget", "Klear-Reasoner-8B"]]
    assert percent("C13") == rows.to_numpy().ravel().tolist()
    assert [number.num_samples for number in claim("C13").paper] == [64, 64, 64, 8, 8] * 2
