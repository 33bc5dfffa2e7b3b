"""Forms of what an instance's owner does with it as a whole: another name, a twin, another owner, a look."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from apps.tenants.models import Queue

_TYPED = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "off"}
ENDS = (
    (1, gettext_lazy("for a day")),
    (7, gettext_lazy("for a week")),
    (30, gettext_lazy("for a month")),
    (90, gettext_lazy("for three months")),
)


class RenameForm(forms.Form):
    """A name."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        help_text=gettext_lazy(
            "Its address, its files and its objects in the cluster stay. By SSH it is found under the new name."
        ),
        widget=forms.TextInput(attrs=_TYPED),
    )


class CloneForm(forms.Form):
    """Where, and under which name."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        help_text=gettext_lazy("Left empty, a name is proposed."),
        widget=forms.TextInput(attrs=_TYPED),
    )
    queue = forms.ChoiceField(
        label=gettext_lazy("Queue"),
        help_text=gettext_lazy("You have one home in each queue; the new instance mounts the one of its queue."),
    )

    def __init__(self, *args: Any, queues: list[Queue], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["queue"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(str(queue.pk), queue.name) for queue in queues]


class TransferForm(forms.Form):
    """To whom, with which home, and the name as a yes."""

    to = forms.CharField(
        label=gettext_lazy("New owner"),
        help_text=gettext_lazy("User name of a member of its team."),
        widget=forms.TextInput(attrs=_TYPED),
    )
    home = forms.ChoiceField(
        label=gettext_lazy("Home"),
        choices=[
            ("stays", gettext_lazy("The home stays with its owner; the instance gets the new owner's.")),
            ("goes", gettext_lazy("The home goes along, with everything in it.")),
        ],
        initial="stays",
    )
    confirm = forms.CharField(
        label=gettext_lazy("Name of the instance"),
        help_text=gettext_lazy("Type it, to say that you mean it."),
        widget=forms.TextInput(attrs=_TYPED),
    )


class ShareForm(forms.Form):
    """Who, and for how long."""

    person = forms.CharField(label=gettext_lazy("User name"), widget=forms.TextInput(attrs=_TYPED))
    days = forms.TypedChoiceField(label=gettext_lazy("How long"), coerce=int, choices=ENDS, initial=7)

    def clean_days(self) -> timedelta:
        """As a length of time."""
        return timedelta(days=self.cleaned_data["days"])
