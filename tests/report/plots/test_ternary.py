"""The triangle of the shares of the loss."""

import numpy as np
import pytest

from mlcl.report.plots.matplotlib_backend import to_svg
from mlcl.report.plots.plot import PlotSkipped
from mlcl.report.plots.ternary import project, ternary_plot
from mlcl.tracking.names import CLASSIFIER_WEIGHT


def weight(head):
    return f"objective.heads.{head}.weight"


def test_three_shares_are_all_drawn(search_of):
    data = search_of(heads=("section", "chapter"))
    table = ternary_plot(data).table
    for (_, told), (_, row) in zip(
        table.iterrows(), data.search[data.search["score"].notna()].iterrows(), strict=True
    ):
        assert (told["trial"], told["state"], told["score"]) == (row["number"], row["state"], row["score"])
        assert told["section"] == row[weight("section")]
        assert told["chapter"] == row[weight("chapter")]
        assert told["classifier"] == row[CLASSIFIER_WEIGHT]


def test_the_picture_holds_the_points(search_of):
    data = search_of(heads=("section", "chapter"))
    plot = ternary_plot(data)
    clouds = {cloud.get_label(): cloud for cloud in plot.figure().axes[0].collections}
    keys = [weight("section"), weight("chapter"), CLASSIFIER_WEIGHT]
    early = data.search[data.search["state"] == "PRUNED"]
    assert len(early) == 5
    for name, trials in {"complete": data.complete, "pruned": early, "best": data.best_first.head(1)}.items():
        np.testing.assert_allclose(clouds[name].get_offsets(), project(trials[keys].to_numpy(float)))
    assert clouds["complete"].get_array().tolist() == data.complete["score"].tolist()


def test_corners_and_middle_of_the_triangle():
    height = np.sqrt(3) / 2
    np.testing.assert_allclose(project(np.eye(3)), [[0.5, height], [0, 0], [1, 0]])
    np.testing.assert_allclose(project(np.full((1, 3), 1 / 3)), [[0.5, height / 3]])


def test_of_more_shares_the_two_that_vary_most_are_kept(search_of):
    def change(frame):
        rest = np.linspace(0.1, 0.5, len(frame))
        shares = {
            weight("section"): 0.05,
            weight("category"): rest,
            weight("chapter"): 0.9 - rest,
            CLASSIFIER_WEIGHT: 0.05,
        }
        return frame.assign(**shares)

    plot = ternary_plot(search_of(heads=("section", "chapter", "category"), change=change))
    assert "Others: section, classifier." in plot.caption
    svg = to_svg(plot.figure())
    assert all(f">{name}<" in svg for name in ("chapter", "category", "others"))
    complete = {each.get_label(): each for each in plot.figure().axes[0].collections}["complete"]
    right = complete.get_offsets()  # x of the corners: 0.5, 0 and 1; the share of the third is 0.1
    np.testing.assert_allclose(right[:, 0] - right[:, 1] / np.sqrt(3), 0.1)


@pytest.mark.parametrize(
    ("heads", "change", "reason"),
    [
        (("section",), {}, "the gamma curve shows it"),
        (("section", "chapter"), {CLASSIFIER_WEIGHT: 1.0}, "do not add up to 1"),
        (
            ("section", "chapter"),
            {weight("section"): 0.2, weight("chapter"): 0.3, CLASSIFIER_WEIGHT: 0.5},
            "the same in all",
        ),
    ],
)
def test_left_out_with_the_reason(search_of, heads, change, reason):
    with pytest.raises(PlotSkipped, match=reason):
        ternary_plot(search_of(heads=heads, change=lambda frame: frame.assign(**change)))
