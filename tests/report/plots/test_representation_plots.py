"""Tests of pictures of representations: their rows, their marks, and equal pictures from equal seeds."""

from dataclasses import replace

import numpy as np
import pytest
from stored_runs import TASKS, trained

from mlcl.errors import UserError
from mlcl.labels import LabelRows
from mlcl.report.embedding_plots import EmbeddingOptions, representation_plots
from mlcl.report.plots import tsne
from mlcl.report.plots.charts import to_svg
from mlcl.report.plots.groups import label_texts, row_groups
from mlcl.report.plots.tsne import label_overlap
from mlcl.training.stored_run import StoredRun


@pytest.fixture(scope="module", params=TASKS)
def finished(request, trained_once):
    return trained_once(*TASKS[request.param])[:2]


@pytest.fixture(scope="module")
def single(trained_once):
    return trained_once()[:2]


def plots_of(folders, job_data, *, seed=0, **options):
    plots, skipped = representation_plots(folders, job_data, EmbeddingOptions(**options), seed=seed)
    return {plot.name: plot for plot in plots}, skipped


def ids(plot, panel, kind=None):
    table = plot.table[plot.table["panel"] == panel]
    table = table if kind is None else table[table["kind"] == kind]
    return [point.partition(":")[0] for point in table["point"]]


def test_the_pictures_of_every_task(finished):
    folder, job_data = finished
    plots, skipped = plots_of({"one": folder, "other": folder}, job_data)
    assert list(plots) == ["tsne", "tsne_neighbours"]
    assert skipped == []
    for plot in plots.values():
        assert ids(plot, "one") == ids(plot, "other")
        titles = [axes.get_title() for axes in plot.figure().axes]
        assert titles == ["one", "other"]
        assert {text.get_text() for text in plot.figure().legends[0].get_texts()} == set(plot.table["kind"])


def test_the_same_seed_gives_the_same_picture(finished):
    folder, job_data = finished
    first, second = (plots_of({"a": folder}, job_data, seed=4)[0] for _ in range(2))
    for name, plot in first.items():
        assert to_svg(plot.figure()) == to_svg(second[name].figure())
        assert plot.table.equals(second[name].table)


def test_the_table_is_drawn(single):
    folder, job_data = single
    for plot in plots_of({"a": folder}, job_data)[0].values():
        drawn_points = {line.get_label(): line.get_xydata().tolist() for line in plot.figure().axes[0].lines}
        for kind, points in plot.table.groupby("kind"):
            assert drawn_points[kind] == points[["x", "y"]].to_numpy().tolist()
        marker_styles = {
            (line.get_marker(), line.get_markerfacecolor()) for line in plot.figure().axes[0].lines
        }
        assert len(marker_styles) == len(drawn_points)


def test_every_row_is_in_the_group_of_its_class(finished):
    job_data = finished[1]
    test = job_data.dataset.split("test")
    texts = label_texts(job_data, test, np.arange(len(test)))
    for group in row_groups(job_data, test):
        for row in group.rows:
            if job_data.task == "aspects":
                assert group.name in texts[row]
            elif job_data.task == "single":
                assert group.name.partition(" ")[0] == texts[row]
            else:
                row_labels = set(texts[row].split(", ")) & set("abcde")
                assert (
                    row_labels == {group.name} if len(row_labels) == 1 else group.name == "several of these"
                )


def shared(job_data, row, other):
    """Returns the mark of the labels that a training row shares with a test row, by a plain loop."""
    train, test = job_data.train, job_data.dataset.split("test")
    if job_data.task == "single":
        details = int(train.labels("detail")[other]), int(test.labels("detail")[row])
        if details[0] == details[1]:
            return "same detail"
        return "same topic" if details[0] // 2 == details[1] // 2 else "another topic"
    if job_data.task == "aspects":
        pairs = zip(job_data.targets(train)[other], job_data.targets(test)[row], strict=True)
        count, word = sum(int(a == b >= 0) for a, b in pairs), "rating"
    else:
        lists = job_data.targets(train).lists()[other], job_data.targets(test).lists()[row]
        count, word = len(set(lists[0]) & set(lists[1])), "label"
    return f"{count or 'no'} {word}{'s' if count > 1 else ''} shared"


def test_marks_equal_a_loop(finished):
    folder, job_data = finished
    run = StoredRun.read(folder, job_data)
    for row in range(len(job_data.dataset.split("test"))):
        names, rank_N = label_overlap(run, "test", row)
        expected = [shared(job_data, row, other) for other in range(len(job_data.train))]
        assert [names[rank] for rank in rank_N] == expected


def test_neighbours_are_the_nearest_of_the_instance(finished):
    folder, job_data = finished
    plot = plots_of({"a": folder}, job_data, instance="test5")[0]["tsne_neighbours"]
    assert ids(plot, "a", "the test row") == ["test5"]
    neighbours = set(ids(plot, "a")) - {"test5"}
    assert neighbours == set(job_data.train.ids)  # there are fewer than 80
    for text, kind in zip(plot.table["point"], plot.table["kind"], strict=True):
        row_id = text.partition(":")[0]
        if row_id != "test5":
            assert kind == shared(job_data, 5, job_data.train.ids.index(row_id))


def test_the_instance_has_several_labels(trained_once):
    folder, job_data, _ = trained_once(*TASKS["multi_label"])
    test = job_data.dataset.split("test")
    labels = dict(zip(test.ids, job_data.targets(test).lists(), strict=True))
    instances = set()
    for seed in range(5):
        plot = plots_of({"a": folder}, job_data, seed=seed)[0]["tsne_neighbours"]
        [instance] = ids(plot, "a", "the test row")
        assert len(labels[instance]) > 1
        instances.add(instance)
    assert len(instances) > 1


def test_classes_may_be_named(single):
    folder, job_data = single
    plot = plots_of({"a": folder}, job_data, classes=["law", "run"])[0]["tsne"]
    assert list(dict.fromkeys(plot.table["kind"])) == ["law (topic state)", "run (topic sport)"]
    with pytest.raises(UserError, match="did you mean vote"):
        plots_of({"a": folder}, job_data, classes=["votes"])
    with pytest.raises(UserError, match="no test row has this id"):
        plots_of({"a": folder}, job_data, instance="nobody")


def test_what_cannot_be_drawn_is_left_out_with_its_reason(single, tmp_path):
    folder, job_data = single
    plots, skipped = plots_of({"gone": tmp_path, "a": folder}, job_data)
    assert set(plots["tsne"].table["panel"]) == {"a"}
    assert skipped == [("embeddings of gone", "the run's embeddings cannot be read")]
    assert representation_plots({"gone": tmp_path}, job_data) == ([], skipped)


def test_many_shared_labels_are_marked_alike(single, monkeypatch):
    monkeypatch.setattr(tsne, "MOST", 1)
    folder, job_data = single
    rows = LabelRows.from_lists([[0, 1, 2], [1, 2], [2], []] * 12, 3)
    run = replace(StoredRun.read(folder, job_data), job_data=replace(job_data, task="multi_label"))
    monkeypatch.setattr(StoredRun, "labels", lambda *_: rows)
    names, rank_N = label_overlap(run, "test", 0)
    assert names == ["no label shared", "1 or more labels shared"]
    assert rank_N.tolist() == [1, 1, 1, 0] * 12
    assert label_overlap(run, "test", 2)[0] == ["no label shared", "1 label shared"]


def test_validation_is_shown_where_a_run_never_read_the_test_split(single, tiny, tmp_path):
    searched_folder, job_data, _ = trained(tiny, tmp_path, test=False)
    plots, skipped = plots_of({"confirmed": single[0], "searched": searched_folder}, job_data)
    assert skipped == []
    for plot in plots.values():
        assert "validation row" in plot.title
        assert "test" not in plot.caption
    assert set(ids(plots["tsne"], "confirmed")) <= set(job_data.dataset.split("validation").ids)
    assert len(ids(plots["tsne_neighbours"], "searched", "the validation row")) == 1
