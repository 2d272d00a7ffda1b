"""Tests the printed tables of a sweep, with invented reports."""

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

ACCURACIES = [0.5, 0.75, 1.0]
BEST = confirmed(
    "best found (trial 2)", *(seed(n, test__accuracy=a, val__accuracy=a) for n, a in enumerate(ACCURACIES))
)
BASE = confirmed("[red]base", seed(1, test__accuracy=0.25, test__accuracy_chapter=0.5), seed(2), seed(3))
OF_TWO = confirmed("best", seed(1, val__accuracy=0.5, val__hamming_loss=0.125, knn_best__val__accuracy=0.75))


def shown(draw, of, width=200):
    output = io.StringIO()
    console = Console(file=output, width=width)
    console.print(draw(of, console))
    return output.getvalue()


@pytest.mark.parametrize(
    ("draw", "of", "lines", "absent"),
    [
        # A pruned trial's score is not final, and an id is of no use to a person.
        (trials_table, report(), [("job-space: 2 COMPLETE, 1 FAILED, 1 PRUNED",),
         ("trial 2", "0.7500", "topic.temperature 0.3, knn.k 5, knn.lambda 0.25"), ("trial 0",)],
         ("trial 1", "run2")),
        (trials_table, report(mode="min"), [("trial 0",), ("trial 2",)], ("trial 1",)),
        (trials_table, report(trials=tuple(trained(n, score=n / 10) for n in range(8))),
         [(f"trial {n}",) for n in (7, 6, 5, 4, 3)], ("trial 0", "trial 1", "trial 2")),
        (trials_table, two_goals(), [("Pareto front of 2",), ("val/accuracy (max)", "val/hamming_loss (min)"),
         ("trial 4", "0.2500", "0.0625")], ("trial 5",)),
        (confirmation_table, report(confirmations=(BASE, BEST)),
         [("accuracy, mean ± standard deviation over fresh seeds (none used by a search)",),
          ("validation", "test, chapter"), ("[red]base", "0.2500 (1 of 3 seeds)", "0.5000 (1 of 3 seeds)"),
          ("best found (trial 2)", f"0.7500 ± {statistics.stdev(ACCURACIES):.4f}")], ("kNN",)),
        (confirmation_table, two_goals(confirmations=(OF_TWO,)),
         [("accuracy, validation", "accuracy, validation + kNN", "hamming_loss, validation"),
          ("best", "0.5000", "0.7500", "0.1250")], ()),
    ],
)  # fmt: skip
def test_a_table_has_these_lines_in_this_order(draw, of, lines, absent):
    text = shown(draw, of)
    matches = [[line for line in text.splitlines() if all(part in line for part in parts)] for parts in lines]
    assert all(matches), text
    positions = [text.index(matching_lines[0]) for matching_lines in matches]
    assert (positions, [part for part in absent if part in text]) == (sorted(positions), [])


def test_failures_have_their_reason_and_are_counted():
    assert failures(report()) == ["trial 3 FAILED: the loss is not finite [step 3]"]
    long_report = report(
        trials=tuple(trained(n, State.FAILED, reason="x") for n in range(FAILURES_SHOWN + 2))
    )
    assert failures(long_report)[-1] == "and 2 more that FAILED"
    group = confirmed("best found", seed(1, State.FAILED))
    assert failures(report(trials=(), confirmations=(group,))) == ["best found, seed 1 FAILED: "]
    race_training = trained(5, State.FAILED, reason="out of memory")
    assert failures(report(trials=(), race_trainings=(race_training,))) == ["trial 5 FAILED: out of memory"]


def test_a_value_is_not_read_as_markup():
    trial = trained(0, settings={"encoder": {"name": "[b]cnn"}})
    assert settings_text(trial) == "encoder {'name': '[b]cnn'}"


def test_the_document_is_json_with_null_for_what_is_no_number():
    group = confirmed("best", seed(1, test__accuracy=math.nan), run_id=None)
    trials = (trained(0, score=0.5), trained(1, State.PRUNED, math.inf))
    tree = document(report(trials=trials, confirmations=(group,), undelivered=2))
    json_tree = json.loads(json.dumps(tree, allow_nan=False))
    assert (json_tree["best"], json_tree["undelivered"]) == ("trial 0", 2)
    assert json_tree["goals"] == [{"metric": "val/accuracy", "mode": "max"}]
    assert [(trial["score"], trial["state"]) for trial in json_tree["trials"]] == [
        (0.5, "COMPLETE"),
        (None, "PRUNED"),
    ]
    assert json_tree["confirmations"][0]["mlflow_run_id"] is None
    assert json_tree["confirmations"][0]["seeds"][0]["metrics"] == {"test/accuracy": None}


@pytest.mark.parametrize("width", range(44, 130, 6))
def test_no_number_is_broken_at_any_width(width):
    figures = dict.fromkeys(("val__accuracy", "test__accuracy", "knn_best__test__accuracy"), 0.5)
    label = "cross_entropy_of_a_long_name, trial 31, best found"
    settings = {f"objective.heads.{head}.temperature": 0.123456 for head in ("section", "chapter", "block")}
    sweep_report = report(
        trials=(trained(0, score=0.123456, settings=settings),),
        confirmations=(confirmed(label, seed(1, **figures), seed(2, **figures)),),
    )
    for draw, expected in ((trials_table, "0.1235"), (confirmation_table, "0.5000 ± 0.0000")):
        text = shown(draw, sweep_report, width)
        assert max(map(len, text.splitlines())) <= width
        assert (expected in text, "…" in text) == (True, False)
        numbers = {word for word in re.findall(r"[\d.]+", text.partition("\n")[2]) if "." in word.strip(".")}
        assert numbers <= {"0.1235", "0.123", "0.5000", "0.0000"}
    wide_count, narrow_count = (
        len(shown(confirmation_table, sweep_report, columns).split("±")) for columns in (130, 44)
    )
    assert wide_count > narrow_count
