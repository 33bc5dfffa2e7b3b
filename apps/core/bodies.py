"""How bodies of requests to the API are read. A module of its own: the framework loads it before its own views."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class BodyParser(JSONParser):
    """JSON; one nested so deep that Python gives up is no fault of ours."""

    def parse(self, *args: Any, **kwargs: Any) -> Any:
        """Raise ``ParseError`` for what is no JSON."""
        try:
            return super().parse(*args, **kwargs)
        except RecursionError as error:
            raise ParseError(_("The JSON is nested too deep.")) from error
