"""Fetching a public file: whole and with the right hash, or not at all."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import new_file

TIMEOUT = 30.0
"""Seconds that a server may be silent."""
BLOCK = 1 << 20


def fetch(urls: Sequence[str], sha256: str, target: Path) -> Path:
    """Fetch a file from the first of several places that has it; return `target`.

    It is streamed to a name beside `target`, its SHA-256 is checked, then it is renamed. Nothing is resumed.
    Raises UserError where no place has the whole file, and where one has another file.
    """
    errors = []
    target.parent.mkdir(parents=True, exist_ok=True)
    for url in urls:
        try:
            with new_file(target) as work:
                found = _stream(url, work)
                if found != sha256:
                    raise UserError("not the file that was published", file=url, found=found, allowed=sha256)
            return target
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
            errors.append(f"{url}: {error}")
    raise UserError("cannot be downloaded; get it elsewhere and name its place", found=errors)


def _stream(url: str, target: Path) -> str:
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response, target.open("xb") as file:
        while block := response.read(BLOCK):
            digest.update(block)
            file.write(block)
        # A connection that ends early looks like the end of the file.
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and file.tell() < int(announced):
            raise ConnectionError(f"{file.tell():,} of {int(announced):,} bytes came")
    return digest.hexdigest()
