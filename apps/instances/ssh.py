"""SSH of an instance: its lasting host key, whose public keys open it, how one gets there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.utils.translation import gettext as _

from apps.core import reconciling
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, NotFound, PortalError
from apps.instances import entering, imaging, inside, options
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.instances.states import LAUNCHED, InstanceState
from apps.tenants import sshkeys
from kubekit.errors import KubeError


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
    script = options.of(instance.options).script
    return {
        **({options.SCRIPT_KEY: script} if script else {}),
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


# --- how a person gets there -------------------------------------------------------------------------------------

#: The name that everything in an instance runs as.
LOGIN = "user"
KNOWN_HOSTS = "~/.ssh/mlportal_known_hosts"
SSH_PORT = 22
#: One call of a library for each packet at the entrance; clients by themselves would choose others.
QUICK_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class Way:
    """What ``ssh`` on somebody's machine has to know to reach one instance. Nothing in it is secret."""

    host: str
    port: int
    person: str
    instance: str
    address: str
    gateway_key: str
    host_key: str

    @property
    def login(self) -> str:
        """The name to sign in with at the instance."""
        return LOGIN

    @property
    def alias(self) -> str:
        """What to call the instance on a command line: its name, unless ``ssh`` could not take it."""
        return self.instance if _PLAIN.fullmatch(self.instance) else self.address

    @property
    def gateway(self) -> str:
        """What to call the entrance."""
        return f"mlportal-{self.host}"

    @property
    def command(self) -> str:
        """Without anything set up."""
        jump = f"[{self.host}]" if ":" in self.host else self.host
        return f"ssh -J {self.person}@{jump}:{self.port} {LOGIN}@{self.address}"

    @property
    def gateway_fingerprint(self) -> str:
        """The entrance's."""
        return sshkeys.fingerprint(self.gateway_key)

    @property
    def fingerprint(self) -> str:
        """The instance's, the same at every start."""
        return sshkeys.fingerprint(self.host_key)

    @property
    def known_hosts(self) -> list[str]:
        """Lines of a known_hosts file."""
        where = self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}"
        return [f"{where} {self.gateway_key}", f"{self.address} {self.host_key}"]

    @property
    def config(self) -> str:
        """A part of ~/.ssh/config with which ``ssh``, ``scp``, ``rsync``, ``git`` and editors go there by name."""
        pinned = f"  StrictHostKeyChecking yes\n  UserKnownHostsFile {KNOWN_HOSTS}\n"
        return (
            f"Host {self.gateway}\n  HostName {self.host}\n  Port {self.port}\n  User {self.person}\n"
            f"  Ciphers {','.join(QUICK_CIPHERS)}\n{pinned}"
            f"Host {self.alias}\n  HostName {self.address}\n  User {LOGIN}\n  ProxyJump {self.gateway}\n{pinned}"
        )


def way_to(instance: Instance, person: str) -> Way | None:
    """The way of this person to their instance; None when this portal has no entrance by SSH, or it no host key yet."""
    key = gateway_key()
    if not key or not instance.ssh_host_public:
        return None
    return Way(
        host=settings.PORTAL_SSH_HOST,
        port=settings.PORTAL_SSH_PORT,
        person=person,
        instance=instance.name,
        address=f"i-{instance.pk.hex}",
        gateway_key=key,
        host_key=instance.ssh_host_public,
    )


def gateway_key() -> str:
    """The public half of the entrance's host key; empty when there is no entrance."""
    file: Path = settings.PORTAL_SSH_HOST_KEY_FILE
    if not settings.PORTAL_SSH_PORT:
        return ""
    try:
        return _public_half(file, file.stat().st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=2)
def _public_half(file: Path, _changed: int) -> str:
    key = serialization.load_ssh_private_key(file.read_bytes(), password=None)
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def require_way(actor: Actor, instance: Instance) -> Way:
    """The way of its owner. Raises ``Forbidden`` for others, ``Conflict`` when there is none."""
    if not entering.may_enter(actor, instance):
        raise Forbidden(
            _("Only its owner may enter an instance or read its key."),
            code="not_owner",
            next=_("Make an instance of your own, or ask the owner."),
        )
    found = way_to(instance, actor.name)
    if found is not None:
        return found
    if not gateway_key():
        raise Conflict(
            _("This portal has no entrance by SSH."),
            code="no_ssh",
            next=_("Use JupyterLab, or ask an administrator to open one (PORTAL_SSH_PORT)."),
        )
    raise Conflict(
        _("The instance “%(name)s” was started before the portal knew SSH.") % {"name": instance.name},
        code="no_ssh_yet",
        next=_("Restart it."),
    )


_WHY = "cat /run/mlportal/ssh/why 2>/dev/null || true"


def state_of(actor: Actor, instance: Instance) -> dict[str, object]:
    """For the page of its owner: ``why`` there is no SSH in a running instance, or that this is ``unknown``."""
    if not entering.may_enter(actor, instance):
        raise NotFound()
    if instance.state != InstanceState.RUNNING:
        return {}
    try:
        _code, said = inside.ask(instance, imaging.script(instance.image, _WHY))
    except (KubeError, PortalError):
        return {"unknown": True}
    return {"why": said.strip()[:500]}
