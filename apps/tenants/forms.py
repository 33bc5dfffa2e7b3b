"""Forms for queues, teams, people and tokens. What they check is only shape; the services decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters.models import Cluster
from apps.core.fields import BytesField, CpuField
from apps.tenants import tokens
from apps.tenants.models import Role, Team

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class GpusField(forms.CharField):
    """One resource a line: ``nvidia.com/gpu 4``. The value is a mapping."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.Textarea(attrs={"rows": 2, "placeholder": "nvidia.com/gpu 4", **_PLAIN}))
        kwargs.setdefault("help_text", gettext_lazy("One resource a line with its count."))
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        """A mapping as lines."""
        return "\n".join(f"{name} {count}" for name, count in value.items()) if isinstance(value, dict) else value

    def to_python(self, value: Any) -> Any:
        found: dict[str, int] = {}
        for line in (super().to_python(value) or "").splitlines():
            words = line.replace("=", " ").replace(":", " ").split()
            if not words:
                continue
            if len(words) != 2 or not words[1].isdecimal():
                raise ValidationError(_("“%(line)s” is not a resource and a count.") % {"line": line}, code="invalid")
            found[words[0]] = int(words[1])
        return found


class QuotaForm(forms.Form):
    """The bounds of a queue."""

    more = ("cpu_oversell", "memory_oversell", "claims", "pods")

    cpu_millis = CpuField(label=gettext_lazy("CPU"))
    memory_bytes = BytesField(label=gettext_lazy("Memory"))
    storage_bytes = BytesField(label=gettext_lazy("Storage"))
    gpus = GpusField(label=gettext_lazy("GPUs"), required=False)
    cpu_oversell = forms.DecimalField(
        label=gettext_lazy("CPU oversell"),
        min_value=1,
        max_value=100,
        max_digits=5,
        decimal_places=2,
        initial=1,
        help_text=gettext_lazy("2 lets all together use twice the CPU that is guaranteed, when it is free."),
    )
    memory_oversell = forms.DecimalField(
        label=gettext_lazy("Memory oversell"),
        min_value=1,
        max_value=100,
        max_digits=5,
        decimal_places=2,
        initial=1,
        help_text=gettext_lazy("Memory that is promised twice and used twice gets programs killed; 1 is safe."),
    )
    claims = forms.IntegerField(label=gettext_lazy("Volumes at most"), min_value=0, initial=50)
    pods = forms.IntegerField(label=gettext_lazy("Pods at most"), min_value=0, initial=200)


class QueueForm(QuotaForm):
    """A new queue."""

    name = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))
    team = forms.ChoiceField(label=gettext_lazy("Team"))
    cluster = forms.ChoiceField(label=gettext_lazy("Cluster"))

    field_order = ("name", "team", "cluster")

    def __init__(self, *args: Any, teams: Sequence[Team], clusters: Sequence[Cluster], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, rows in (("team", teams), ("cluster", clusters)):
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = [(str(row.pk), row.name) for row in rows]


class TeamForm(forms.Form):
    """A new team, or another name for one."""

    name = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))
    description = forms.CharField(label=gettext_lazy("Description"), required=False, max_length=300)


class ImageRuleForm(forms.Form):
    """Whether a team brings images of its own."""

    own_images = forms.BooleanField(
        label=gettext_lazy("Members may use images that are not in the catalogue"),
        required=False,
        help_text=gettext_lazy(
            "For dev instances on real clusters. They run as any other: without privileges, within quota and network."
        ),
    )
    image_prefixes = forms.CharField(
        label=gettext_lazy("Only from these registries"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "placeholder": "registry.example/team\ndocker.io/library", **_PLAIN}),
        help_text=gettext_lazy(
            "One a line: a registry's host, or the beginning of a path in it. Left empty: from anywhere."
        ),
    )


class MembersForm(forms.Form):
    """A pasted list of members."""

    members = forms.CharField(
        label=gettext_lazy("Members"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "placeholder": "li.hua\nwang.wei admin\nzhang.min viewer", **_PLAIN}),
        help_text=gettext_lazy("One user name a line; behind it admin, member or viewer. Without a word: member."),
    )


class RoleForm(forms.Form):
    """Another role for one member."""

    role = forms.ChoiceField(choices=Role.choices)


class UserForm(forms.Form):
    """A new account."""

    more = ("email", "password", "is_platform_admin")

    username = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))
    email = forms.CharField(label=gettext_lazy("Mail address"), required=False, widget=forms.EmailInput())
    password = forms.CharField(
        label=gettext_lazy("Password"),
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("Left empty, one is made and shown once; it has to be changed at the first sign-in."),
    )
    is_platform_admin = forms.BooleanField(label=gettext_lazy("Platform administrator"), required=False)


class TokenForm(forms.Form):
    """A new personal token."""

    more = ("scopes",)

    name = forms.CharField(
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("What it is for, so that you know which one to revoke."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    days = forms.IntegerField(
        label=gettext_lazy("Lasts (days)"), min_value=1, max_value=tokens.MAX_DAYS, initial=tokens.DEFAULT_DAYS
    )
    scopes = forms.CharField(
        label=gettext_lazy("Scopes"),
        required=False,
        widget=forms.TextInput(attrs={"placeholder": "flow:run:<id> run:read", **_PLAIN}),
        help_text=gettext_lazy("Separated by spaces. Left empty, the token may do all that you may."),
    )


class SshKeyForm(forms.Form):
    """A new public key. Its field takes more than a key has, so that the refusal can say what was pasted."""

    key = forms.CharField(
        label=gettext_lazy("Public key"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "ssh-ed25519 AAAA… me@laptop", **_PLAIN}),
        help_text=gettext_lazy(
            "The one line of a file such as ~/.ssh/id_ed25519.pub. The file without .pub stays yours."
        ),
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        help_text=gettext_lazy("Such as the machine that the key is on. Left empty, it is the key's own comment."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
