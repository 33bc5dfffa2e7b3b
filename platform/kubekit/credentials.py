"""A kubeconfig's text, reduced to what is needed and nothing that could act.

A kubeconfig can name programs to run, files to read and proxies to use; loading one that a person uploaded would run
those inside the portal (failure F46). So it is parsed as plain data, exactly one context is followed, and anything
beyond {server, CA, token or client certificate, namespace} is refused with a code. The result is encrypted by the
caller before it is stored; its ``repr`` shows no secret.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from .errors import CredentialError
from .names import is_dns_label

MAX_KUBECONFIG_BYTES = 1 << 20
_CLOCKS_APART = timedelta(minutes=5)
_LAST_S = 32503680000
"""The year 3000: what ends later does not end."""

_REFUSED_CLUSTER = {
    "certificate-authority": (
        "ca_file",
        "give the CA inside the file (certificate-authority-data): `kubectl config view --flatten`",
    ),
    "insecure-skip-tls-verify": ("insecure_tls", "give the cluster's CA instead of switching verification off"),
    "proxy-url": ("proxy", "a proxy cannot be named in a kubeconfig; give an address that the portal reaches directly"),
}
_REFUSED_USER = {
    "exec": (
        "exec",
        "programs are never run from a kubeconfig; give a service account's token or a client certificate",
    ),
    "auth-provider": ("auth_provider", "auth providers are not supported; give a service account's token"),
    "tokenFile": ("token_file", "give the token itself, not a file's path"),
    "client-certificate": ("certificate_file", "give client-certificate-data: `kubectl config view --flatten --raw`"),
    "client-key": ("key_file", "give client-key-data: `kubectl config view --flatten --raw`"),
    "username": ("password", "Kubernetes no longer knows passwords; give a service account's token"),
    "password": ("password", "Kubernetes no longer knows passwords; give a service account's token"),
    "as": ("impersonation", "impersonation is not supported; give the account's own credentials"),
    "as-uid": ("impersonation", "impersonation is not supported; give the account's own credentials"),
    "as-groups": ("impersonation", "impersonation is not supported; give the account's own credentials"),
    "as-user-extra": ("impersonation", "impersonation is not supported; give the account's own credentials"),
}
_CLUSTER_KEYS = {"server", "certificate-authority-data", "tls-server-name", "disable-compression", "extensions"}
_USER_KEYS = {"token", "client-certificate-data", "client-key-data", "extensions"}
_CONTEXT_KEYS = {"cluster", "user", "namespace", "extensions"}


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """How to reach one cluster and who we are there. PEM texts, never paths.

    ``server`` has no trailing slash. Either ``token``, or ``client_cert`` with ``client_key``. ``addresses``: where the
    server's name leads, when somebody has checked that; then connections go there and nowhere else.
    """

    server: str
    ca_data: str | None = None
    token: str | None = field(default=None, repr=False)
    client_cert: str | None = field(default=None, repr=False)
    client_key: str | None = field(default=None, repr=False)
    namespace: str = "default"
    tls_server_name: str | None = None
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "server", _checked_server(self.server))
        if (self.client_cert is None) != (self.client_key is None):
            raise CredentialError("half_certificate", "a client certificate needs its key, and a key its certificate")
        if self.token is None and self.client_cert is None:
            raise CredentialError("no_login", "the file names no token and no client certificate")
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable() or " " in self.token):
            raise CredentialError("bad_token", "the token contains characters that cannot stand in a header")
        if not is_dns_label(self.namespace):
            raise CredentialError("bad_namespace", f"{self.namespace[:64]!r} is not a namespace's name")

    @property
    def secure(self) -> bool:
        """Whether the connection is TLS; plain HTTP is accepted on loopback only."""
        return self.server.startswith("https:")

    def headers(self) -> dict[str, str]:
        """The ``Authorization`` header, when a token is used."""
        return {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}

    def ssl_context(self) -> ssl.SSLContext:
        """A verifying TLS context with this CA alone (the system's when none is given) and the client certificate.

        Raises `CredentialError` when a PEM text is not what it should be.
        """
        try:
            context = ssl.create_default_context(cadata=self.ca_data)
        except (ssl.SSLError, ValueError) as error:
            raise CredentialError("bad_ca", "certificate-authority-data is not a PEM certificate") from error
        # VERIFY_X509_STRICT (default since Python 3.13) refuses CAs that kubeadm and k3s make.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.client_cert is not None and self.client_key is not None:
            _load_client_certificate(context, self.client_cert, self.client_key)
        return context


def _load_client_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
    # The ssl module takes paths only; an anonymous memory file keeps the key off every disk.
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(f"{cert.strip()}\n{key.strip()}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise CredentialError(
            "bad_certificate", "client-certificate-data and client-key-data do not fit together"
        ) from error
    finally:
        os.close(descriptor)


def _no_password() -> str:
    # Without a callback OpenSSL would ask on the terminal of the server and wait.
    raise ValueError("the client key is encrypted")


def _checked_server(server: str) -> str:
    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError as error:
        raise CredentialError("bad_server", "the server's address is not a URL") from error
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or not plain
        or port == 0
        or not server.isprintable()
    ):
        raise CredentialError("bad_server", "the server's address must look like https://host:6443")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise CredentialError("plain_http", "plain http is accepted on this machine's loopback only; use https")
    return server.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_kubeconfig(text: str | bytes, *, context: str | None = None) -> Credentials:
    """The credentials of one context (``current-context`` unless named) of a kubeconfig.

    Raises `CredentialError`; its codes: ``too_large``, ``not_yaml``, ``not_kubeconfig``, ``no_context``,
    ``missing_entry``, ``bad_server``, ``plain_http``, ``bad_base64``, ``bad_ca``, ``bad_certificate``, ``no_login``,
    ``half_certificate``, ``bad_token``, ``bad_namespace``, ``expired``, ``not_yet_valid``,
    ``unknown_setting`` and one for each refused setting
    (``exec``, ``auth_provider``, ``token_file``, ``ca_file``, ``certificate_file``, ``key_file``, ``insecure_tls``,
    ``proxy``, ``impersonation``, ``password``).
    """
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > MAX_KUBECONFIG_BYTES:
        raise CredentialError("too_large", "a kubeconfig is at most 1 MiB")
    document = _load(raw)
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config" or "clusters" not in document:
        raise CredentialError("not_kubeconfig", "this is YAML, but not a kubeconfig (kind: Config)")
    wanted = context if context is not None else document.get("current-context")
    if not wanted:
        raise CredentialError(
            "no_context", "the file has no current-context; set one with `kubectl config use-context`"
        )
    chosen = _entry(document, "contexts", "context", wanted)
    _refuse(chosen, {}, _CONTEXT_KEYS, "context")
    cluster = _entry(document, "clusters", "cluster", chosen.get("cluster"))
    user = _entry(document, "users", "user", chosen.get("user"))
    _refuse(cluster, _REFUSED_CLUSTER, _CLUSTER_KEYS, "cluster")
    _refuse(user, _REFUSED_USER, _USER_KEYS, "user")
    found = Credentials(
        server=_text(cluster, "server") or "",
        ca_data=_decoded(cluster, "certificate-authority-data"),
        token=_text(user, "token"),
        client_cert=_decoded(user, "client-certificate-data"),
        client_key=_decoded(user, "client-key-data"),
        namespace=_text(chosen, "namespace") or "default",
        tls_server_name=_text(cluster, "tls-server-name"),
    )
    found.ssl_context()
    _require_valid_now(found)
    return found


def expiry(credentials: Credentials) -> datetime | None:
    """When the client certificate or the token ends; None for a token that does not say so (and may never end)."""
    if credentials.client_cert is not None:
        return _validity(credentials.client_cert)[1]
    seconds = _claims(credentials.token or "").get("exp")
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int | float) and 0 < seconds < _LAST_S else None


def _validity(pem: str) -> tuple[datetime | None, datetime | None]:
    """From when to when the first certificate of a text is valid; nothing for one that only the TLS library reads."""
    try:
        found = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return None, None
    return found.not_valid_before_utc, found.not_valid_after_utc


def _claims(token: str) -> Mapping[str, Any]:
    """What a service account's token (a JWT) says of itself. Only read, never believed: the server judges it."""
    body = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _require_valid_now(credentials: Credentials) -> None:
    now, end = datetime.now(UTC), expiry(credentials)
    what = "token" if credentials.client_cert is None else "client certificate"
    if end is not None and end < now:
        raise CredentialError("expired", f"the {what} ended on {end:%Y-%m-%d %H:%M} UTC; give one that is still valid")
    begin = _validity(credentials.client_cert)[0] if credentials.client_cert is not None else None
    if begin is not None and begin > now + _CLOCKS_APART:
        raise CredentialError(
            "not_yet_valid", f"the {what} is valid only from {begin:%Y-%m-%d %H:%M} UTC; are the clocks right?"
        )


class _NoAliasLoader(yaml.SafeLoader):
    """Safe YAML without aliases: a few lines of aliases expand to gigabytes ("billion laughs")."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise CredentialError("not_yaml", "YAML aliases are not accepted in a kubeconfig")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _load(raw: bytes) -> object:
    try:
        return yaml.load(raw, Loader=_NoAliasLoader)  # noqa: S506 - a subclass of SafeLoader
    except CredentialError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CredentialError("not_yaml", "the text is not valid YAML") from error


def _entry(document: Mapping[str, Any], section: str, key: str, name: object) -> Mapping[str, Any]:
    rows = document.get(section)
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("name") == name and isinstance(row.get(key), dict):
            found: Mapping[str, Any] = row[key]
            return found
    raise CredentialError("missing_entry", f"the file has no entry named {str(name)[:80]!r} under {section}")


def _refuse(entry: Mapping[str, Any], refused: Mapping[str, tuple[str, str]], known: set[str], where: str) -> None:
    for key, value in entry.items():
        if key in refused:
            if value in (None, "", False, [], {}):
                continue
            code, sentence = refused[key]
            raise CredentialError(code, f"{key} is refused: {sentence}")
        if key not in known:
            raise CredentialError(
                "unknown_setting", f"{where} has a setting the portal does not know: {str(key)[:80]!r}"
            )


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise CredentialError("not_kubeconfig", f"{key} must be a text")
    return value.strip()


def _decoded(entry: Mapping[str, Any], key: str) -> str | None:
    value = _text(entry, key)
    if value is None:
        return None
    try:
        return base64.b64decode("".join(value.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise CredentialError("bad_base64", f"{key} is not base64 of a PEM text") from error
