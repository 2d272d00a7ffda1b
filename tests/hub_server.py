"""A local stand-in for the Hugging Face Hub, which has repositories, and receives and serves files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN, READER = "hf_writer", "hf_reader"
USER = "ada"
COMMIT = "a" * 40


@dataclass
class Repository:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[list[str]] = field(default_factory=list)


@dataclass
class Hub:
    """The state of the stand-in.

    `repositories` are keyed by name. `large` has the contents that were uploaded by git LFS, keyed by their
    SHA-256. `downloads` has the path of each file that was sent.
    """

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_):
        pass

    def _answer(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _refused(self, *, writes: bool = True) -> bool:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in (TOKEN, READER):
            self._answer({"error": "Invalid credentials in Authorization header"}, 401)
        elif writes and token != TOKEN:
            self._answer({"error": "You need write access"}, 403)
        else:
            return False
        return True

    def do_HEAD(self):
        self._send_file(head=True)

    def _send_file(self, *, head: bool) -> None:
        """Answers a request for `/OWNER/NAME/resolve/REVISION/FILE`."""
        owner, name, _, _, *path = self.path.partition("?")[0].strip("/").split("/")
        content = self.hub.repositories[f"{owner}/{name}"].files["/".join(path)]
        self.send_response(200)
        for key, value in (
            ("Content-Length", len(content)),
            ("ETag", f'"{git_id(content)}"'),
            ("X-Repo-Commit", COMMIT),
        ):
            self.send_header(key, str(value))
        self.end_headers()
        if not head:
            self.hub.downloads.append("/".join(path))
            self.wfile.write(content)

    def do_GET(self):
        parts = self.path.partition("?")[0].strip("/").split("/")
        if self._refused(writes=False):
            return
        if parts[2] == "resolve":
            self._send_file(head=False)
            return
        name = "/".join(parts[2:4])
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._answer({"error": "Repository not found"}, 404)
        elif "tree" in parts:
            self._answer(
                [{"type": "file", "path": path, "size": len(content), "oid": git_id(content)}
                 for path, content in repository.files.items()]
            )  # fmt: skip
        else:
            siblings = [{"rfilename": path} for path in repository.files]
            self._answer({"id": name, "private": repository.private, "siblings": siblings, "sha": COMMIT})

    def do_PUT(self):
        content = self._body()
        self.hub.large[hashlib.sha256(content).hexdigest()] = content
        self._answer({})

    def do_POST(self):
        path, body = self.path.partition("?")[0], self._body()
        if self._refused():
            return
        name = "/".join(path.strip("/").split("/")[2:4])
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = self.hub.repositories[name].files
            self._answer(
                {"files": [upload_mode(entry["path"], files) for entry in json.loads(body)["files"]]}
            )
        elif path.endswith("/objects/batch"):
            objects = json.loads(body)["objects"]
            self._answer({"transfer": "basic", "objects": [self._place(entry) for entry in objects]})
        elif "/commit/" in path:
            self._commit(name, [json.loads(line) for line in body.splitlines()])

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization'] or USER}/{wanted['name']}"
        if name.partition("/")[0] != USER:
            self._answer({"error": f"You have no rights in {name.partition('/')[0]}"}, 403)
        elif name in self.hub.repositories:
            url = f"{self.hub.address}/{name}"
            self._answer({"error": "You already created this model repo", "url": url}, 409)
        else:
            self.hub.repositories[name] = Repository(
                wanted.get("visibility") == "private" or wanted.get("private", False)
            )
            self._answer({"url": f"{self.hub.address}/{name}", "name": name})

    def _place(self, its: dict[str, Any]) -> dict[str, Any]:
        if its["oid"] in self.hub.large:
            return its
        return {**its, "actions": {"upload": {"href": f"{self.hub.address}/upload"}}}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        repository, commit = self.hub.repositories[name], "b" * 40
        repository.commits.append([])
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header":
                continue
            repository.commits[-1].append(f"{key} {value['path']}")
            if key == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                repository.files[value["path"]] = self.hub.large[value["oid"]]
            else:
                del repository.files[value["path"]]
        self._answer({"commitUrl": f"{self.hub.address}/{name}/commit/{commit}", "commitOid": commit})


def upload_mode(path: str, files: dict[str, bytes]) -> dict[str, Any]:
    """Returns the answer about an upload: weights use LFS; `oid` lets the client skip an unchanged file."""
    is_large = path.endswith((".safetensors", ".onnx", ".parquet"))
    content = files.get(path)
    oid = None if content is None else hashlib.sha256(content).hexdigest() if is_large else git_id(content)
    return {"path": path, "uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False, "oid": oid}


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
