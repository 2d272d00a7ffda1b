import hashlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from mlcl.data.sources.cifar import fetch
from mlcl.errors import UserError

CONTENT = bytes(range(256)) * 9_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "set.bin").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_file_is_fetched_from_the_first_place_that_has_it(server, tmp_path):
    target = tmp_path / "got" / "set.bin"
    assert fetch([f"{server}/nowhere.bin", f"{server}/set.bin"], SHA256, target) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_another_file_is_refused_and_not_left(server, tmp_path):
    message = f"not the file that was published; found: {SHA256}; allowed: 0{{64}}"
    with pytest.raises(UserError, match=message):
        fetch([f"{server}/set.bin"], "0" * 64, tmp_path / "got" / "set.bin")
    assert list((tmp_path / "got").iterdir()) == []


class Short(Quiet):
    """A handler that closes the connection after half of the announced content."""

    def copyfile(self, source, outputfile):
        outputfile.write(source.read()[: len(CONTENT) // 2])
        self.close_connection = True


def test_half_a_file_is_no_file_and_the_next_place_is_tried(server, tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Short, directory=tmp_path / "served")) as short_server:
        Thread(target=short_server.serve_forever, args=(0.01,), daemon=True).start()
        url, target = f"http://127.0.0.1:{short_server.server_port}/set.bin", tmp_path / "got" / "set.bin"
        with pytest.raises(UserError, match=r"cannot be downloaded.*1,152,000 of 2,304,000 bytes came"):
            fetch([url], SHA256, target)
        assert list(target.parent.iterdir()) == []
        assert fetch([url, f"{server}/set.bin"], SHA256, target).read_bytes() == CONTENT
        short_server.shutdown()


def test_without_a_server_the_user_is_told_what_to_do(server, tmp_path):
    with pytest.raises(UserError, match=r"give its path; found: .*nowhere.bin: HTTP Error 404") as error:
        fetch([f"{server}/nowhere.bin", "http://127.0.0.1:9/set.bin"], SHA256, tmp_path / "got" / "set.bin")
    assert "127.0.0.1:9" in str(error.value)
    assert list((tmp_path / "got").iterdir()) == []
