import multiprocessing
import re
import socket
import subprocess
import sys

import pytest
import tiers


def listen():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()


def spawn():
    multiprocessing.get_context("spawn").Process(target=print).start()


def start_ray():
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (listen, "listens"),
        (spawn, "starts a process"),
        (start_ray, "runs "),
        (lambda: subprocess.run([sys.executable, "--version"], check=True), "runs python"),
        (lambda: subprocess.Popen("mlflow server", shell=True), "runs mlflow"),
    ],
)
def test_a_quick_test_that_starts_something_fails_with_a_sentence(start, what):
    pattern = f"it is a quick test and {what}.*tests/tiers.py"
    with pytest.raises(pytest.fail.Exception, match=pattern), tiers.guarded("it"):
        start()


def test_a_quick_test_may_run_git_and_connect(tmp_path):
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        with tiers.guarded("it"):
            subprocess.run(["git", "--version"], check=True, capture_output=True)
            assert client.connect_ex(server.getsockname()) != 0


def test_what_is_named_exists():
    for name in tiers.FULL:
        path, _, test = name.partition("::")
        assert (tiers.TESTS / path).exists(), name
        pattern = re.compile(rf"^(def|class) {test.partition('::')[0]}\b", re.MULTILINE)
        assert not test or pattern.search((tiers.TESTS / path).read_text()), name


def test_a_folder_a_file_and_a_test_are_named_whole(monkeypatch):
    assert tiers.is_full("e2e")
    assert tiers.is_full("e2e/test_run.py::test_it[1]")
    assert not tiers.is_full("e2e_more/test_run.py")
    assert not tiers.is_full("losses/test_e2e.py")


def test_this_test_is_quick(request):
    assert request.node.get_closest_marker("quick") is not None
