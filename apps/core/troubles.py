"""What a person reads when the database itself is in trouble: away, full, or too slow.

The codes are PostgreSQL's SQLSTATEs (appendix A of its manual).
"""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, OperationalError
from django.utils.translation import gettext_lazy as _

from apps.core.errors import PortalError, Unavailable

DISK_FULL = "53100"
CANCELED = "57014"
LOCK_TIMEOUT = "55P03"


def of(error: BaseException | None) -> PortalError | None:
    """The trouble behind a database error as an error with a code and a next step; None for any other fault."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    state = getattr(error.__cause__, "sqlstate", None)
    if state == DISK_FULL:
        return Unavailable(
            _("The disk of the portal's database is full. This was not carried out."),
            code="disk_full",
            next=_(
                "An administrator frees space where the portal keeps its data; then try again. Nothing saved is lost."
            ),
        )
    if state in {CANCELED, LOCK_TIMEOUT}:
        return Unavailable(
            _("The portal's database took too long. This was not carried out."),
            code="database_slow",
            next=_("Try again in a moment."),
        )
    if isinstance(error, OperationalError | InterfaceError):
        return Unavailable(
            _("The portal's database does not answer just now."),
            code="database_away",
            next=_("Wait a moment, look whether it was carried out, and try again if not."),
        )
    return None
