"""Names and labels of every cluster object, as a pure function of the row they stand for.

A name is a readable slug of what the person typed, cut to fit, and 13 base-32 characters (65 bits) of SHA-256 over the
row's id: deterministic, so a repeated request meets the same object, and free of collisions whatever people type
(Chinese, quotes, slashes, 64 characters). Names are DNS labels, because they also become host names and label values.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from .errors import SpecError

if TYPE_CHECKING:
    from .specs import Identity

MAX_NAME = 63
#: A StatefulSet's name is repeated in its pods' ``controller-revision-hash`` label with "-" and ten characters.
MAX_STATEFUL_SET_NAME = 52
DIGEST_LENGTH = 13

LABEL_PREFIX = "mlportal.io"
INSTALL = f"{LABEL_PREFIX}/install"
KIND = f"{LABEL_PREFIX}/kind"
ID = f"{LABEL_PREFIX}/id"
GENERATION = f"{LABEL_PREFIX}/generation"
ATTEMPT = f"{LABEL_PREFIX}/attempt"
DISPLAY_NAME = f"{LABEL_PREFIX}/name"
#: Annotation of a pod: the generation that its mounted Secret was last written for.
REFRESHED = f"{LABEL_PREFIX}/refreshed"
#: Keeps a finished task pod readable until its result and the end of its log are stored.
RESULT_FINALIZER = f"{LABEL_PREFIX}/result"
FIELD_MANAGER = "mlportal"

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_NOT_SLUG = re.compile(r"[^a-z0-9]+", re.ASCII)


def is_dns_label(text: str) -> bool:
    """RFC 1123 label of at most 63 characters: what Kubernetes demands of most names."""
    return len(text) <= MAX_NAME and _DNS_LABEL.fullmatch(text) is not None


def is_dns_name(text: str) -> bool:
    """Dot-separated RFC 1123 labels, at most 253 characters in all."""
    return len(text) <= 253 and all(is_dns_label(part) for part in text.split("."))


def digest(*parts: str) -> str:
    """65 bits of SHA-256 over the parts, in lower-case base 32. Parts are length-prefixed, so ("a", "bc") differs
    from ("ab", "c")."""
    framed = b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))
    return b32encode(hashlib.sha256(framed).digest()).decode().lower()[:DIGEST_LENGTH]


def slug(text: str, *, limit: int) -> str:
    """The readable part: lower-case ASCII letters, digits and single dashes, at most ``limit`` long, maybe empty.

    Not unique by itself; see `slug_and_digest` and `safe_slug`.
    """
    return _NOT_SLUG.sub("-", text.lower()).strip("-")[:limit].strip("-")


def slug_and_digest(text: str, *identity: str, limit: int = MAX_NAME, prefix: str = "") -> str:
    """``<prefix><slug of text>-<digest of identity>``, at most ``limit`` long.

    Always an RFC 1035 label (it begins with a letter), because that is what Services demand.
    """
    tail = digest(*identity)
    readable = _from_letter(text, limit=limit - len(prefix) - len(tail) - 1)
    return f"{prefix}{readable}-{tail}"


def _from_letter(text: str, *, limit: int) -> str:
    """A slug that is never empty and begins with a letter."""
    readable = slug(text, limit=limit)
    return readable if readable[:1].isalpha() else slug(f"x{readable}", limit=limit)


def safe_slug(text: str, *, limit: int = MAX_NAME) -> str:
    """``text`` itself when it is a harmless DNS label, else a slug with a digest of the text behind ``--``.

    A plain label that contains ``--`` is hashed too, so that no text can be chosen to equal another one's result.
    """
    if len(text) <= limit and "--" not in text and is_dns_label(text):
        return text
    tail = digest(text)
    readable = slug(text, limit=limit - len(tail) - 2)
    return f"{readable or 'x'}--{tail}"


def namespace_name(queue_slug: str, queue_id: UUID | str) -> str:
    """Namespace of a queue. The id makes it unique for ever: a namespace's name is never reused (failure F10)."""
    return slug_and_digest(queue_slug, "queue", str(queue_id), prefix="mlp-")


def instance_name(name: str, instance_id: UUID | str) -> str:
    """Name shared by an instance's StatefulSet, Service, route and Secret; its pod is ``<name>-0``."""
    return slug_and_digest(name, "instance", str(instance_id), limit=MAX_STATEFUL_SET_NAME)


def instance_pod_name(name: str, instance_id: UUID | str) -> str:
    """The one pod of an instance's StatefulSet."""
    return f"{instance_name(name, instance_id)}-0"


def claim_name(name: str, volume_id: UUID | str) -> str:
    """Name of a volume's PersistentVolumeClaim."""
    return slug_and_digest(name, "volume", str(volume_id))


def attempt_pod_name(flow: str, run_id: UUID | str, node: str, n: int, attempt_id: UUID | str) -> str:
    """Pod of one attempt, ``<flow>-<node>-<n>-<digest>``. Another attempt is another name (failure F5)."""
    tail = f"{n}-{digest('attempt', str(run_id), str(attempt_id))}"
    room = MAX_NAME - len(tail) - 2
    node_part = slug(node, limit=room // 2) or "x"
    flow_part = _from_letter(flow, limit=room - len(node_part))
    return f"{flow_part}-{node_part}-{tail}"


def instance_host(instance_id: UUID | str, apps_domain: str) -> str:
    """``i-<32 hex>.<apps domain>``: a host that nobody can steer by a name they type (failure F42)."""
    if not is_dns_name(apps_domain):
        raise SpecError("bad_domain", "apps_domain", f"{apps_domain!r} is not a domain name")
    try:
        hexadecimal = instance_id.hex if isinstance(instance_id, UUID) else UUID(instance_id).hex
    except ValueError as error:
        raise SpecError("bad_id", "id", f"{instance_id!r} is not a UUID") from error
    return f"i-{hexadecimal}.{apps_domain}"


def selector(identity: Identity) -> dict[str, str]:
    """The labels that find an identity's objects; none of them ever changes, so they fit immutable selectors."""
    return {INSTALL: identity.install, KIND: identity.kind, ID: identity.id}


def labels(identity: Identity, component: str) -> dict[str, str]:
    """All labels of an object that belongs to ``identity``; ``component`` names the part (``pod``, ``route``)."""
    found = {
        "app.kubernetes.io/name": identity.kind,
        "app.kubernetes.io/instance": safe_slug(identity.name),
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "mlportal",
        "app.kubernetes.io/managed-by": "mlportal",
        **selector(identity),
        GENERATION: str(identity.generation),
    }
    if identity.attempt is not None:
        found[ATTEMPT] = str(identity.attempt)
    return found


def parse_id(text: str | None) -> UUID | None:
    """The row that a label `ID` names; None when it names none, for labels can hold anything."""
    try:
        return UUID(text or "")
    except ValueError:
        return None


def selector_text(wanted: Mapping[str, str]) -> str:
    """The ``labelSelector`` query string for a mapping of equalities."""
    return ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
