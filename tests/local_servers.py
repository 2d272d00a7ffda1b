"""Small, quick stand-ins for Ray's head and MLflow's server, whose failures are set by files.

`python local_servers.py ray|mlflow PORT` answers the requests of `mlcl up`, `down` and `status`, and has a
child process. In the folder where it runs, `NAME.dies` ends it at once, `NAME.open` lets it answer without a
secret, and `jobs.json` has the jobs of Ray.
"""

import base64
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NODE = {"state": "ALIVE", "resources_total": {"CPU": 4.0, "GPU": 1.0}}


def jobs():
    file = Path("jobs.json")
    return json.loads(file.read_text()) if file.exists() else []


PAGES = {
    "/api/jobs/": lambda: json.dumps(jobs()),
    "/api/v0/nodes": lambda: json.dumps({"data": {"result": {"result": [NODE]}}}),
    "/api/version": lambda: json.dumps({"ray_version": "2.60.0"}),
    "/version": lambda: "3.17.2",
}


def expected(name):
    """Returns the credentials that a request needs."""
    if name == "ray":
        return f"Bearer {Path(os.environ['RAY_AUTH_TOKEN_PATH']).read_text().strip()}"
    login = f"admin:{os.environ['MLFLOW_AUTH_ADMIN_PASSWORD']}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def handler(name):
    secret = expected(name)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            trusted = self.headers.get("Authorization") == secret or Path(f"{name}.open").exists()
            self.send_response(200 if trusted else 401)
            self.end_headers()
            if trusted:
                self.wfile.write(PAGES[self.path.partition("?")[0]]().encode())

        def log_message(self, *_):
            pass

    return Handler


def main(name, port):
    if Path(f"{name}.dies").exists():
        sys.exit("no room for it here")
    subprocess.Popen(["sleep", "1000"])
    ThreadingHTTPServer(("127.0.0.1", int(port)), handler(name)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
