"""Who submitted a job: against slips alone, for the cluster's token allows everything."""

from __future__ import annotations

import getpass

from mlcl.errors import UserError


def present_user() -> str:
    """The name of this user, which other users of the cluster see; empty where it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # as in some containers
        return ""


def check_owner(id: str, owner: str, *, force: bool) -> None:
    """Raises UserError for the job of another user, without `force`. An empty `owner` is unknown."""
    if owner not in ("", present_user()) and not force:
        found = f"{id} of {owner}"
        raise UserError("the job of another user", key="ID", found=found, allowed="--force")
