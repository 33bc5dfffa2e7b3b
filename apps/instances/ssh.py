"""SSH of an instance: its lasting host key, whose public keys open it, how one gets there."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apps.core import reconciling
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.instances.states import LAUNCHED
from apps.tenants import sshkeys


def fresh_host_key() -> dict[str, str]:
    """Columns of a row that has no host key yet; it keeps this one as long as it lives (failure F49)."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {"ssh_host_key": private.decode(), "ssh_host_public": public.decode()}


def secret_data(instance: Instance) -> Mapping[str, str]:
    """What the instance's Secret holds for a launch."""
    return {
        "key": instance.key.reveal(),
        "ssh-host-key": instance.ssh_host_key.reveal(),
        "authorized_keys": "".join(f"{text}\n" for text in sshkeys.texts_of(instance.owner_id)),
    }


def keys_changed(user_id: UUID) -> None:
    """Have the Secrets of what this person has running written anew, inside the transaction that changes the keys."""
    rows = Instance.objects.as_system().select_for_update(of=("self",)).filter(owner_id=user_id, state__in=LAUNCHED)
    for instance in rows:
        values = {"generation": instance.generation + 1, **reconciling.look_now(instance)}
        Instance.objects.as_system().filter(pk=instance.pk).update(**values)
        reconciling.hint(KIND, instance.pk)
