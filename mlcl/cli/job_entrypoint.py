"""Resolves the references to secrets of a submitted command on the cluster, and then runs the command."""

from __future__ import annotations

import sys

from mlcl.cli.main import main
from mlcl.cli.output import fail
from mlcl.errors import UserError
from mlcl.service.ray.references import resolve_references

if __name__ == "__main__":
    try:
        resolve_references()
    except UserError as error:
        sys.exit(fail(error, as_json="--json" in sys.argv))
    main()
