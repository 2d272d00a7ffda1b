"""The tables of a sweep, from made-up reports."""

import io
import json
import math
import re
import statistics

import pytest
from rich.console import Console
from sweep_reports import confirmed, report, seed, trained, two_goals

from mlcl.cli.sweep_tables import FAILURES_SHOWN, confirmation_table, failures, settings_text, trials_table
from mlcl.results.documents import document
from mlcl.tracking import State


def shown(draw, of, width=200):
    written = io.StringIO()
    console = Console(file=written, width=width)
    console.print(draw(of, console))
    return written.getvalue()


def lines_with(text, *parts):
    return [line for line in text.splitlines() if all(part in line for part in parts)]


def test_the_best_complete_trials_come_first():
    text = shown(trials_table, report())
    assert "job-space: 2 COMPLETE, 1 FAILED, 1 PRUNED" in text
    assert text.index("trial 2") < text.index("trial 0")
    assert "trial 1" not in text  # a rung's score is no final one
    assert lines_with(text, "trial 2", "0.7500", "topic.temperature 0.3, knn.k 5, knn.lambda 0.25")
    assert "run2" not in text  # an id says nothing to a person


def test_where_less_is_better_the_least_comes_first():
    text = shown(trials_table, report(mode="min"))
    assert text.index("trial 0") < text.index("trial 2")


def test_at_most_five_trials_are_shown():
    text = shown(trials_table, report(trials=tuple(trained(n, score=n / 10) for n in range(8))))
    assert [n for n in range(8) if f"trial {n}" in text] == [3, 4, 5, 6, 7]


def test_several_goals_show_the_front():
    text = shown(trials_table, two_goals())
    assert "Pareto front of 2" in text
    assert lines_with(text, "val/accuracy (max)", "val/hamming_loss (min)")
    assert lines_with(text, "trial 4", "0.2500", "0.0625")
    assert "trial 5" not in text


def test_failures_have_their_reason_and_are_counted():
    assert failures(report()) == ["trial 3 FAILED: the loss is not finite [step 3]"]
    many = report(trials=tuple(trained(n, State.FAILED, reason="x") for n in range(FAILURES_SHOWN + 2)))
    assert failures(many)[-1] == "and 2 more that FAILED"
    group = confirmed("best found", seed(1, State.FAILED))
    assert failures(report(trials=(), confirmations=(group,))) == ["best found, seed 1 FAILED: "]


def test_confirmations_are_means_over_fresh_seeds():
    accuracies = [0.5, 0.75, 1.0]
    best = confirmed(
        "best found (trial 2)",
        *(seed(n, test__accuracy=a, val__accuracy=a) for n, a in enumerate(accuracies)),
    )
    base = confirmed("base", seed(1, test__accuracy=0.25, test__accuracy_chapter=0.5), seed(2), seed(3))
    text = shown(confirmation_table, report(confirmations=(base, best)))
    assert "accuracy, mean ± standard deviation over 3 fresh seeds (none used by the search)" in text
    assert lines_with(text, "best found (trial 2)", f"0.7500 ± {statistics.stdev(accuracies):.4f}")
    assert lines_with(text, "base", "0.2500 (1 of 3 seeds)", "0.5000 (1 of 3 seeds)")
    assert lines_with(text, "validation", "test, chapter")
    assert "kNN" not in text


def test_confirmations_of_several_goals_have_columns_for_each():
    group = confirmed(
        "best", seed(1, val__accuracy=0.5, val__hamming_loss=0.125, knn_best__val__accuracy=0.75)
    )
    text = shown(confirmation_table, two_goals(confirmations=(group,)))
    header = ("accuracy, validation", "accuracy, validation + kNN", "hamming_loss, validation")
    assert lines_with(text, *header)
    assert lines_with(text, "best", "0.5000", "0.7500", "0.1250")


def test_a_label_is_not_read_as_markup():
    group = confirmed("[red]base", seed(1, test__accuracy=0.5))
    assert "[red]base" in shown(confirmation_table, report(confirmations=(group,)))
    odd = trained(0, settings={"encoder": {"name": "[b]cnn"}})
    assert settings_text(odd) == "encoder {'name': '[b]cnn'}"


def test_the_document_is_json_with_null_for_what_is_no_number():
    group = confirmed("best", seed(1, test__accuracy=math.nan), run_id=None)
    trials = (trained(0, score=0.5), trained(1, State.PRUNED, math.inf))
    tree = document(report(trials=trials, confirmations=(group,), undelivered=2))
    again = json.loads(json.dumps(tree, allow_nan=False))
    assert again["best"] == "trial 0"
    assert again["goals"] == [{"metric": "val/accuracy", "mode": "max"}]
    assert again["undelivered"] == 2
    assert [t["score"] for t in again["trials"]] == [0.5, None]
    assert [t["state"] for t in again["trials"]] == ["COMPLETE", "PRUNED"]
    assert again["confirmations"][0]["mlflow_run_id"] is None
    assert again["confirmations"][0]["seeds"][0]["metrics"] == {"test/accuracy": None}


@pytest.mark.parametrize("width", range(44, 130, 6))
def test_no_number_is_broken_at_any_width(width):
    figures = dict.fromkeys(("val__accuracy", "test__accuracy", "knn_best__test__accuracy"), 0.5)
    long = confirmed(
        "cross_entropy_of_a_long_name, trial 31, best found", seed(1, **figures), seed(2, **figures)
    )
    settings = {f"objective.heads.{head}.temperature": 0.123456 for head in ("section", "chapter", "block")}
    searched = report(trials=(trained(0, score=0.123456, settings=settings),), confirmations=(long,))
    for draw, least in ((trials_table, ["0.1235"]), (confirmation_table, ["0.5000 ± 0.0000"])):
        text = shown(draw, searched, width)
        assert all(len(line) <= width for line in text.splitlines())
        assert all(each in text for each in least)
        assert "…" not in text
        words = re.findall(r"[\d.]+", text.partition("\n")[2])
        assert {word for word in words if "." in word and word != "."} <= {
            "0.1235",
            "0.123",
            "0.5000",
            "0.0000",
        }
    wide, narrow = (len(shown(confirmation_table, searched, each).split("±")) for each in (130, 44))
    assert wide > narrow
