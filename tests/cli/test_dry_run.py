"""Plans: what a run or a sweep would do is printed, and nothing starts."""

import yaml
from builders import HEADS_SPACE


def test_a_dry_run_and_a_printed_config_start_nothing(here, tmp_path):
    plan = here("run", "job.yaml", "--dry-run", "--json").json
    assert plan["training"] == {
        "epochs": 4, "steps_per_epoch": 3, "steps": 12, "rows_per_step": 32, "workers": 1
    }  # fmt: skip
    printed = here("run", "job.yaml", "--print-config", "train.epochs=9")
    (tmp_path / "job.yaml").write_text(printed.out)
    assert here("run", "job.yaml", "--dry-run", "--json").json["training"]["epochs"] == 9
    assert not (tmp_path / "outputs" / "mlflow.db").exists()
    assert not (tmp_path / "outputs" / "runs").exists()


def test_a_dry_run_says_what_a_sweep_would_do_and_starts_nothing(here, tmp_path):
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(HEADS_SPACE))
    answer = here("sweep", "job.yaml", "space.yaml", "--trials", 5, "--seeds", 3, "--dry-run", "--json")
    assert answer.status == 0, answer.err
    plan = answer.json["sweep"]
    assert (plan["trials"], plan["most_confirmation_runs"], plan["rungs_at_epochs"]) == (5, 21, [1, 2])
    assert plan["baselines"] == [
        "majority", "tfidf_knn", "tfidf_logreg", "tfidf_logreg_balanced", "tfidf_svm",
    ]  # fmt: skip
    assert plan["answered_after_training"] == {"evaluation.knn.grid.k": 2, "evaluation.knn.grid.lambda": 21}
    assert not (tmp_path / "outputs" / "mlflow.db").exists()
    assert not (tmp_path / "outputs" / "sweeps").exists()
