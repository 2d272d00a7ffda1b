"""The three tiers of tests, and the limits of a quick test.

slow   marked so in its file: longer than a minute
full   named by FULL: starts processes or servers, or takes seconds
quick  every other test

A quick test computes in its own process. If the test or one of its fixtures starts Python, Ray or a server,
it fails with a message. `make test` runs the quick and the full ones.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

import pytest

TESTS = Path(__file__).resolve().parent
REFUSED = re.compile("chrom|gcs_server|initdb|mlcl|mlflow|postgres|python|ray|redis")
"""Matches the beginnings of names of programs that a quick test may not run; git and bash are allowed."""
FULL = (
    "api/test_caller_collate.py",
    "api/test_caller_encoder.py",
    "api/test_cluster_calls.py",
    "api/test_interface.py",
    "api/test_tour.py",
    "browser",
    "cli",
    "cluster",
    "config/test_plugin_files.py::test_another_process_needs_the_carried_job_alone",
    "config/test_tables.py::test_a_leaderboard_searches_all_methods_alike",
    "config/test_tables.py::test_a_table_has_the_figures_that_the_paper_prints",
    "config/test_tables.py::test_every_cell_of_a_table_fits_its_data_set",
    "data/test_bundled_sources.py",
    "data/test_download.py",
    "data/test_preparation.py::test_two_processes_at_once_make_one_folder",
    "data/test_writer.py::test_killed_half_way_leaves_no_folder_and_the_next_run_cleans_up",
    "e2e",
    "evaluation/test_every_metric.py",
    "evaluation/test_posthoc.py",
    "evaluation/test_unknown_entries.py",
    "integrations",
    "losses/test_distributed.py",
    "losses/test_documentation.py",
    "losses/test_factory.py::test_importing_the_losses_needs_torch_alone",
    "losses/test_memory.py",
    "losses/test_oracles.py::TestEveryLoss::test_two_processes_equal_one",
    "losses/test_oracles.py::TestSeveralPaths::test_two_processes_equal_one",
    "losses/test_plain_loss.py::TestNeighbouring::test_two_processes_equal_one",
    "losses/test_products.py::test_labels_in_the_hosts_memory_keep_no_step_waiting",
    "losses/test_queue.py::test_two_processes_hold_the_rows_of_one",
    "losses/test_tiled_sum.py::test_a_compiled_model_around_the_loss",
    "losses/test_tiled_sum.py::test_float32_at_any_scale_of_the_logits",
    "models/test_hub_download.py",
    "models/test_images.py",
    "models/test_ldgn.py::test_gradients_equal_differences",
    "models/test_plm_icd.py",
    "models/test_pretrained.py",
    "models/test_transformer.py",
    "nodes",
    "report",
    "security",
    "service/doctor",
    "service/engine/test_checkpoints.py",
    "service/engine/test_encoding_beside.py",
    "service/engine/test_engine.py",
    "service/engine/test_kills_at_writes.py",
    "service/engine/test_closing.py",
    "service/engine/test_notify.py",
    "service/jobs/test_submit.py",
    "service/local",
    "service/process/test_stderr.py",
    "service/ray/test_session.py",
    "service/search/test_baseline_search.py",
    "service/search/test_deleted_views.py",
    "service/search/test_evidence.py",
    "service/search/test_search_source.py",
    "service/search/test_space_versions.py",
    "service/search/test_study.py",
    "service/search/test_sweep.py",
    "service/search/test_sweep_run.py",
    "service/starter/test_layouts.py::test_a_public_layout_is_read_trained_on_and_predicted",
    "service/starter/test_starter.py",
    "service/tables",
    "service/test_run_baselines.py",
    "service/test_run_job.py",
    "significance/test_paired_tests.py::test_the_interval_holds_the_true_effect_as_often_as_it_says",
    "significance/test_paired_tests.py::test_without_an_effect_the_tests_err_no_more_often_than_they_say",
    "significance/test_rank_tests.py::test_an_effect_is_found_the_more_often_the_more_data_sets_there_are",
    "significance/test_rank_tests.py::test_without_an_effect_the_tests_err_at_their_level",
    "store/test_database.py",
    "test_architecture.py",
    "test_examples.py",
    "test_grad_cache.py::test_two_processes_in_ddp_have_the_gradient_of_one",
    "test_tutorial.py",
    "testing",
    "tools",
    "tracking/test_artifacts.py",
    "tracking/test_delivery.py",
    "tracking/test_leaderboard.py",
    "tracking/test_log.py",
    "tracking/test_moved_home.py",
    "tracking/test_names.py::test_tags_are_spelled_in_one_module",
    "tracking/test_sender.py",
    "tracking/test_tracker.py",
    "training/test_batches.py::test_a_compiled_training_is_the_same_and_says_what_its_first_step_took",
    "training/test_batches.py::test_compiled_views_are_the_same",
    "training/test_distributed.py",
    "training/test_encoders.py",
    "training/test_every_loss.py",
    "training/test_experiment.py",
    "training/test_exported.py",
    "training/test_exported_formats.py",
    "training/test_metric_groups.py",
    "training/test_micro.py",
    "training/test_model_card.py",
    "training/test_patience.py",
    "training/test_rank_evaluation.py",
    "training/test_unknown_labels.py",
    "training/test_unseen.py",
    "training/test_waits.py::test_a_step_reads_nothing",
)
"""The folders, files and tests under tests/ that start processes, listen, or take more than two seconds."""
_FULL = re.compile(rf"(?:{'|'.join(map(re.escape, FULL))})(?!\w)")


def is_full(name: str) -> bool:
    """Returns whether FULL names this path or test, or a folder or file that contains it."""
    return _FULL.match(name) is not None


def mark(items: Iterable[pytest.Item]) -> None:
    """Marks every test that is not slow with its tier."""
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("full" if is_full(item.nodeid.removeprefix("tests/")) else "quick")


@contextmanager
def guarded(name: str) -> Iterator[None]:
    """Makes a test fail if it starts a process or listens.

    The failure is one of pytest, which `except Exception` does not catch.
    """

    def refuse(action: str) -> None:
        pytest.fail(f"{name} is a quick test and {action}: name it in FULL of tests/tiers.py", pytrace=False)

    with ExitStack() as stack:

        def before(owner: type, method: str, check) -> None:
            original = getattr(owner, method)

            def checked(self, *args, **kwargs):
                check(*args, **kwargs)
                return original(self, *args, **kwargs)

            stack.enter_context(mock.patch.object(owner, method, checked))

        def run(args, *_, **__):
            program = Path(str(args if isinstance(args, str | Path) else args[0])).name
            if REFUSED.match(program):
                refuse(f"runs {program}")

        before(socket.socket, "listen", lambda *_: refuse("listens"))
        before(BaseProcess, "start", lambda: refuse("starts a process"))
        before(subprocess.Popen, "__init__", run)
        yield
