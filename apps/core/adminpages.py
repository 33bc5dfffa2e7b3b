"""Pages of platform administrators."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from apps.core.errors import Forbidden


class AdminPage:
    """Mixed into pages of platform administrators. Others get 403: that such pages exist is no secret."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Show the refusal as every other error."""
        actor = getattr(request, "actor", None)
        if request.user.is_authenticated and not actor.is_admin:  # type: ignore[union-attr]
            error = Forbidden(_("This page is for platform administrators."), code="admin_only")
            return self.show_error(error)  # type: ignore[attr-defined]
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
