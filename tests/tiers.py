"""The three tiers of tests, and what a quick test may not do.

slow   marked so where it stands: longer than a minute
full   what FULL names: starts processes or servers, or takes seconds
quick  every other test

A quick test computes in its own process. Where it, or a fixture of it, starts another one of Python, Ray or
a server, it fails with a sentence. `make test` runs the quick and the full ones.
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
"""How the names of programs begin that a quick test may not run; git and bash are quick."""
FULL = (
    "store/test_database.py::test_a_process_that_is_killed_while_it_writes_loses_nothing_that_it_has_written",
    "store/test_database.py::test_commands_at_once_on_a_new_home_lose_nothing",
    "store/test_database.py::test_none_of_a_thousand_flipped_bits_changes_what_is_read",
    "browser",
    "cli",
    "cluster",
    "config/test_plugin_files.py::test_another_process_needs_the_carried_job_alone",
    "data/test_bundled_sources.py",
    "data/test_download.py",
    "data/test_preparation.py::test_two_processes_at_once_make_one_folder",
    "data/test_writer.py::test_killed_half_way_leaves_no_folder_and_the_next_run_cleans_up",
    "e2e",
    "losses/test_distributed.py",
    "losses/test_documentation.py::test_the_block_with_processes_gives_the_loss_of_all_rows",
    "losses/test_factory.py::test_importing_the_losses_needs_torch_alone",
    "losses/test_oracles.py::TestEveryLoss::test_two_processes_equal_one",
    "losses/test_oracles.py::TestSeveralPaths::test_two_processes_equal_one",
    "losses/test_plain_loss.py::TestNeighbouring::test_two_processes_equal_one",
    "losses/test_tiled_sum.py::test_a_compiled_model_around_the_loss",
    "losses/test_tiled_sum.py::test_float32_at_any_scale_of_the_logits",
    "models/test_images.py",
    "nodes",
    "report",
    "security",
    "service/doctor",
    "service/engine/test_kills_at_writes.py",
    "service/local",
    "service/process/test_stderr.py",
    "service/ray/test_session.py",
    "service/starter/test_layouts.py::test_a_public_layout_is_read_trained_on_and_predicted",
    "service/test_run_baselines.py",
    "service/test_run_job.py",
    "service/search/test_deleted_views.py",
    "service/search/test_sweep.py::test_a_moved_or_copied_home_goes_on",
    "service/tables/test_parts.py",
    "service/tables/test_tables.py::test_neighbours_of_a_row_are_those_of_a_run_with_that_setting",
    "significance/test_paired_tests.py::test_the_interval_holds_the_true_effect_as_often_as_it_says",
    "significance/test_paired_tests.py::test_without_an_effect_the_tests_err_no_more_often_than_they_say",
    "test_examples.py",
    "test_tutorial.py",
    "testing",
    "tracking/test_artifacts.py",
    "tracking/test_delivery.py",
    "tracking/test_leaderboard.py",
    "tracking/test_log.py",
    "tracking/test_moved_home.py",
    "tracking/test_sender.py",
    "tracking/test_tracker.py",
    "tools/test_site.py",
    "training/test_distributed.py",
    "training/test_encoders.py",
    "training/test_exported.py",
    "training/test_rank_evaluation.py",
)
"""Folders, files and tests under tests/ that start processes, listen, or take more than about two seconds."""
_FULL = re.compile(rf"(?:{'|'.join(map(re.escape, FULL))})(?!\w)")


def is_full(name: str) -> bool:
    """Whether FULL names this path or test, or a folder or file that it is in."""
    return _FULL.match(name) is not None


def mark(items: Iterable[pytest.Item]) -> None:
    """Gives every test that is not slow its tier."""
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("full" if is_full(item.nodeid.removeprefix("tests/")) else "quick")


@contextmanager
def guarded(name: str) -> Iterator[None]:
    """Within, what a quick test may not do fails; pytest's failure passes through `except Exception`."""

    def refuse(what: str) -> None:
        pytest.fail(f"{name} is a quick test and {what}: name it in FULL of tests/tiers.py", pytrace=False)

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
