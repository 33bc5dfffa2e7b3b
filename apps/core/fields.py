"""Form fields in people's units that give base units: CPUs as thousandths, ``8 GiB`` as bytes."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from apps.core import quantities

_SIZE = re.compile(r"([0-9]+(?:[.,][0-9]+)?)\s*(?:([KMGTP])(?:iB|i|B)?|B)?", re.ASCII | re.IGNORECASE)
_POWER = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class CpuField(forms.CharField):
    """``0.5`` or ``4`` CPUs; the value is in thousandths."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}))
        kwargs.setdefault("help_text", _("In CPUs, for example 0.5 or 4."))
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Thousandths as CPUs; what was typed stays."""
        return quantities.number(value / 1000, 3) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            millis = Decimal(text.replace(",", ".")) * 1000
        except InvalidOperation:
            raise ValidationError(_("This is not a number of CPUs such as 0.5 or 4."), code="invalid") from None
        if not millis.is_finite() or millis < 0 or millis != millis.to_integral_value():
            raise ValidationError(_("CPUs are counted in thousandths, from 0."), code="invalid")
        return int(millis)


class BytesField(forms.CharField):
    """``8``, ``8 GiB`` or ``512 MiB``; a bare number means GiB. The value is in bytes."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.TextInput(attrs={"autocomplete": "off"}))
        kwargs.setdefault("help_text", _("For example 8 GiB or 512 MiB; a bare number means GiB."))
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Bytes in the largest unit that gives a whole number; what was typed stays."""
        if not isinstance(value, int):
            return value
        power = 0
        while value and value % 1024 == 0 and power < len(quantities.UNITS) - 1:
            value, power = value // 1024, power + 1
        return f"{value} {quantities.UNITS[power]}"

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        found = _SIZE.fullmatch(text)
        if found is None:
            raise ValidationError(_("This is not a size such as 8 GiB."), code="invalid")
        if found[2] is None and not text.upper().endswith("B"):
            power = 3
        else:
            power = _POWER[found[2].upper()] if found[2] else 0
        return int(Decimal(found[1].replace(",", ".")) * 1024**power)
