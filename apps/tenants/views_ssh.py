"""Pages of one's own keys for SSH."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext_lazy

from apps.core.pages import ActionPage, FormPage
from apps.tenants import selectors, sshkeys
from apps.tenants.forms import SshKeyForm
from apps.tenants.models import SshKey


class SshKeys(FormPage):
    """One's public keys: list, add, delete."""

    section = "account"
    title = gettext_lazy("SSH keys")
    submit_label = gettext_lazy("Add the key")
    template = "tenants/ssh_keys.html"
    form = SshKeyForm

    def extra(self) -> Mapping[str, Any]:
        return {"keys": selectors.ssh_keys(self.actor)}

    def submit(self, data: dict[str, Any]) -> str:
        sshkeys.add(actor=self.actor, id=data["id"], key=data["key"], name=data["name"])
        return reverse("tenants:ssh-keys")


class DeleteSshKey(ActionPage):
    """The button beside a key."""

    done = gettext_lazy("The key is deleted.")

    def rows(self) -> QuerySet[SshKey]:
        return selectors.ssh_keys(self.actor)

    def act(self, obj: SshKey) -> str:
        sshkeys.delete(actor=self.actor, key=obj)
        return reverse("tenants:ssh-keys")
