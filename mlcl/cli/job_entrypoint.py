"""Resolves references to secrets on the cluster, and then runs the submitted command.

The references are passed in an environment variable. The secrets do not appear in a description, log or file
of the job.
"""

from __future__ import annotations

import json
import os
import sys

from pydantic import ValidationError

from mlcl.cli.main import main
from mlcl.cli.output import fail
from mlcl.config.cluster import Reference
from mlcl.errors import UserError
from mlcl.service.jobs.submit import REFERENCES


def read_references() -> None:
    """Sets the variables that MLCL_REFERENCES names to their secrets. Raises UserError if one is missing."""
    try:
        tree = json.loads(os.environ.get(REFERENCES, "{}"))
        references = {str(name): Reference.model_validate(its) for name, its in tree.items()}
    except (ValueError, AttributeError, ValidationError):
        raise UserError("not a map of references", key=REFERENCES) from None
    for name, reference in references.items():
        os.environ[name] = reference.resolve(f"{name}, on the cluster")


if __name__ == "__main__":
    try:
        read_references()
    except UserError as error:
        sys.exit(fail(error, as_json="--json" in sys.argv))
    main()
