"""The environment variables that a person sets, parsed once; errors name the variable."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from kubekit.errors import SpecError
from kubekit.incluster import IN_CLUSTER
from kubekit.reference import parse as parse_reference
from mlportal.paths import ROOT, Home

DATABASE_NAME = "mlportal"
MEMORY = "memory://"
"""As REDIS_URL: broker, cache and channel layer inside the process. For unit tests."""


class BadEnvironment(ValueError):
    """A variable has a value that cannot be used. The text names the variable and what it should be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """Where PostgreSQL is. `host` may be the folder of a unix socket."""

    name: str
    user: str
    password: str
    host: str
    port: str
    sslmode: str = ""

    def url(self) -> str:
        """The same as a URL, as DATABASE_URL takes it."""
        who = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        if self.host.startswith("/"):
            return f"postgresql://{who}@/{quote(self.name)}?host={quote(self.host, safe='')}&port={self.port or 5432}"
        where = self.host + (f":{self.port}" if self.port else "")
        tail = f"?sslmode={self.sslmode}" if self.sslmode else ""
        return f"postgresql://{who}@{where}/{quote(self.name)}{tail}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Every setting that comes from outside. Instances are made by `read`."""

    home: Home
    http_address: str
    http_port: int
    ssh_address: str
    ssh_port: int
    ssh_port_given: bool
    given_ssh_public: str
    ssh_host_key_file: Path
    given_origin: str
    apps_domain: str
    admin_password: str | None
    database: Database
    database_embedded: bool
    redis_url: str
    redis_embedded: bool
    cluster: str
    secret_file: Path
    smtp_url: str | None
    mail_from: str
    egress_allow: tuple[str, ...]
    tools_image: str
    start_timeout_s: float
    task_start_timeout_s: float
    log_days: int
    lease_s: float
    orphan_grace_s: float
    debug: bool

    @property
    def cluster_embedded(self) -> bool:
        """Whether the portal runs its own localkube."""
        return self.cluster == "local"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the cluster that is registered at the first start."""
        return self.home.localkube / "kubeconfig" if self.cluster_embedded else Path(self.cluster)

    @property
    def authority(self) -> str:
        """Host and port of the portal as a browser on this machine writes them."""
        return f"{_bracketed(self.http_address)}:{self.http_port}"

    @property
    def origin(self) -> str:
        """The portal's own address, as people's browsers write it."""
        return self.given_origin or f"http://{self.authority}"

    @property
    def ssh_public(self) -> tuple[str, int]:
        """Host and port of the entrance by SSH, as people's machines reach it."""
        host, _, port = self.given_ssh_public.partition(" ")
        return host or urlsplit(self.origin).hostname or self.ssh_address, int(port or self.ssh_port)

    @property
    def public_port(self) -> int:
        """The port of that address; instances are at the same one, as far as the portal's own cluster is concerned."""
        parts = urlsplit(self.origin)
        return parts.port or (443 if parts.scheme == "https" else 80)


def read(environ: Mapping[str, str] | None = None) -> Environment:
    """Parse the variables.

    Raises BadEnvironment for the first one that cannot be used.
    """
    values = _Variables(os.environ if environ is None else environ)
    home = Home(root=Path(values.get("PORTAL_HOME") or ROOT / ".portal").expanduser().absolute())
    database_url = values.get("DATABASE_URL")
    redis_url = values.get("REDIS_URL")
    cluster = _cluster(values.get("PORTAL_CLUSTER") or "local")
    found = Environment(
        home=home,
        http_address=_address(values.get("PORTAL_HTTP_ADDRESS") or "127.0.0.1"),
        http_port=_port("PORTAL_HTTP_PORT", values.get("PORTAL_HTTP_PORT") or "8000"),
        ssh_address=_any_address("PORTAL_SSH_ADDRESS", values.get("PORTAL_SSH_ADDRESS") or "127.0.0.1"),
        ssh_port=_port("PORTAL_SSH_PORT", values.get("PORTAL_SSH_PORT") or "2222", least=0),
        ssh_port_given=bool(values.get("PORTAL_SSH_PORT")),
        given_ssh_public=_host_and_port("PORTAL_SSH_PUBLIC", values.get("PORTAL_SSH_PUBLIC")),
        ssh_host_key_file=Path(values.get("PORTAL_SSH_HOST_KEY_FILE") or home.ssh_host_key).expanduser().absolute(),
        given_origin=_origin(values.get("PORTAL_ORIGIN") or ""),
        apps_domain=_domain(values.get("PORTAL_APPS_DOMAIN") or "apps.localhost", local=cluster == "local"),
        admin_password=values.get("PORTAL_ADMIN_PASSWORD") or None,
        database=parse_database_url(database_url) if database_url else embedded_database(home),
        database_embedded=not database_url,
        redis_url=_redis(redis_url) if redis_url else f"unix://{home.redis_socket}",
        redis_embedded=not redis_url,
        cluster=cluster,
        secret_file=Path(values.get("PORTAL_SECRET_FILE") or home.secret_file).expanduser().absolute(),
        smtp_url=_smtp(values.get("PORTAL_SMTP_URL") or ""),
        mail_from=values.get("PORTAL_MAIL_FROM") or "portal@localhost",
        egress_allow=_egress(values.get("PORTAL_EGRESS_ALLOW") or ""),
        tools_image=_image("PORTAL_TOOLS_IMAGE", values.get("PORTAL_TOOLS_IMAGE") or "mlportal/tools:1"),
        start_timeout_s=_seconds("PORTAL_START_TIMEOUT_S", values.get("PORTAL_START_TIMEOUT_S") or "300"),
        task_start_timeout_s=_seconds(
            "PORTAL_TASK_START_TIMEOUT_S", values.get("PORTAL_TASK_START_TIMEOUT_S") or "900"
        ),
        log_days=_days("PORTAL_LOG_DAYS", values.get("PORTAL_LOG_DAYS") or "90"),
        lease_s=_seconds("PORTAL_LEASE_S", values.get("PORTAL_LEASE_S") or "40", least=1),
        orphan_grace_s=_seconds("PORTAL_ORPHAN_GRACE_S", values.get("PORTAL_ORPHAN_GRACE_S") or "300"),
        debug=_flag("PORTAL_DEBUG", values.get("PORTAL_DEBUG") or "0"),
    )
    values.refuse_unknown()
    return found


_PREFIX = "PORTAL_"
_OF_THE_COMMAND_LINE = frozenset({"PORTAL_URL", "PORTAL_TOKEN", "PORTAL_PASSWORD"})
"""What `portalctl` reads, in the same shell perhaps."""
_SERVICE = "_SERVICE_HOST"
_SERVICE_LINK = re.compile(
    r"SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?|(?P<address>PORT)"
)


class _Variables:
    """The environment, which notes what it was asked for: that is what the portal knows.

    In a cluster, Kubernetes tells a container of the services of its namespace by variables whose names begin with a
    service's. Those of a service called `portal` or `portal-…` are none of the portal's settings, whatever their name.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        services = {name.removesuffix(_SERVICE) for name in environ if name.endswith(_SERVICE)}
        self._environ = {
            name: value
            for name, value in environ.items()
            if value and not any(_is_link_of(service, name, value) for service in services)
        }
        self._known: set[str] = set()

    def get(self, name: str) -> str:
        """The value, empty when there is none."""
        self._known.add(name)
        return self._environ.get(name, "")

    def refuse_unknown(self) -> None:
        """Raise BadEnvironment for a variable of the portal's that nothing has asked for: a slip of the pen."""
        mine = {name for name in self._environ if name.startswith(_PREFIX)}
        for name in sorted(mine - self._known - _OF_THE_COMMAND_LINE):
            near = difflib.get_close_matches(name, sorted(self._known | _OF_THE_COMMAND_LINE), n=1, cutoff=0)[0]
            raise BadEnvironment(
                f"{name} is no setting of the portal; the nearest is {near}. Correct it or leave it out. "
                "(unknown_setting)"
            )


def _is_link_of(service: str, name: str, value: str) -> bool:
    """Whether Kubernetes sets this for a service (enableServiceLinks); `…_PORT` is an address there, never a number."""
    if not name.startswith(f"{service}_"):
        return False
    found = _SERVICE_LINK.fullmatch(name, len(service) + 1)
    return found is not None and (found["address"] is None or "://" in value)


def embedded_database(home: Home) -> Database:
    """The address of the PostgreSQL that the portal starts itself: a unix socket in the run folder."""
    return Database(name=DATABASE_NAME, user=DATABASE_NAME, password="", host=str(home.run), port="5432")


def parse_database_url(url: str) -> Database:
    """Parse postgresql://user:password@host:port/name?sslmode=…; `?host=/folder` names a unix socket's folder.

    Raises BadEnvironment for another scheme or without a database name.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise BadEnvironment(
            f"DATABASE_URL starts with {parts.scheme or 'nothing'}://; only postgresql:// is supported."
        )
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise BadEnvironment("DATABASE_URL has no database name: postgresql://user:password@host:5432/NAME")
    query = _query(parts.query)
    unknown = set(query) - {"host", "port", "sslmode"}
    if unknown:
        raise BadEnvironment(f"DATABASE_URL has the unknown option {min(unknown)!r}; known are host, port and sslmode.")
    try:
        port = str(parts.port or query.get("port", ""))
    except ValueError as error:
        raise BadEnvironment(f"DATABASE_URL: {error}") from error
    return Database(
        name=name,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        host=query.get("host", parts.hostname or ""),
        port=port,
        sslmode=query.get("sslmode", ""),
    )


def broker_url(redis_url: str) -> str:
    """REDIS_URL as Celery wants it: there a unix socket has another scheme, and its database another name."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    database = _query(parts.query).get("db", "")
    who, at, _ = parts.netloc.rpartition("@")
    return f"redis+socket://{who}{at}{parts.path}" + (f"?virtual_host={database}" if database else "")


def _query(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split("&") if part)
    return {key: unquote(value) for key, _, value in pairs}


def _port(name: str, text: str, *, least: int = 1) -> int:
    if not text.isdecimal() or not least <= int(text) <= 65535:
        raise BadEnvironment(f"{name} is {text!r}; it must be a number from {least} to 65535.")
    return int(text)


def _any_address(name: str, text: str) -> str:
    """An address to listen on with a protocol that protects itself."""
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError as error:
        raise BadEnvironment(f"{name} is {text!r}; it must be an IP address.") from error


def _host_and_port(name: str, text: str) -> str:
    """`host`, `host:port` or `[address]:port` as host and port with a space between; the port may be missing."""
    found = re.fullmatch(r"(?:\[(?P<address>[0-9a-fA-F:]+)\]|(?P<host>[A-Za-z0-9.-]+))(?::(?P<port>\d{1,5}))?", text)
    if text and found is None:
        raise BadEnvironment(f"{name} is {text!r}; it must look like ssh.example.org or ssh.example.org:22.")
    if found is None:
        return ""
    port = _port(name, found["port"]) if found["port"] else ""
    return f"{found['address'] or found['host']} {port}".strip()


def _address(text: str) -> str:
    """An address to listen on. Plain HTTP is served on loopback alone: tickets and sessions would be readable."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError as error:
        raise BadEnvironment(f"PORTAL_HTTP_ADDRESS is {text!r}; it must be an IP address.") from error
    if not address.is_loopback:
        raise BadEnvironment(
            f"PORTAL_HTTP_ADDRESS is {text}, which other machines reach. The portal speaks plain HTTP, and over HTTP "
            "passwords and keys could be read on the way; it would need HTTPS there. Use 127.0.0.1, and from another "
            "machine a tunnel: ssh -L 8000:127.0.0.1:8000 THIS-MACHINE"
        )
    return str(address)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _origin(text: str) -> str:
    """Where browsers reach the portal when something stands in front of it. Plain HTTP is for names of this machine."""
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadEnvironment(f"PORTAL_ORIGIN is {text!r}: {error}") from error
    if parts.scheme not in {"http", "https"} or not host or parts.path.strip("/") or parts.query or parts.username:
        raise BadEnvironment(f"PORTAL_ORIGIN is {text!r}; it must look like https://portal.example.org.")
    if parts.scheme == "http" and not _is_this_machine(host):
        raise BadEnvironment(
            f"PORTAL_ORIGIN is {text}, but over plain HTTP passwords and keys could be read on the way. Use https://; "
            "http:// is accepted for localhost, names that end in .localhost, and addresses of loopback."
        )
    return f"{parts.scheme}://{_bracketed(host)}" + (f":{port}" if port else "")


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"


def _domain(text: str, *, local: bool) -> str:
    """Where instances are. Those of the embedded cluster are served over plain HTTP, so on this machine alone."""
    domain = text.lower().strip(".")
    if not re.fullmatch(rf"{_LABEL}(?:\.{_LABEL})*", domain) or len(domain) > 200:
        raise BadEnvironment(f"PORTAL_APPS_DOMAIN is {text!r}; it must be a host name such as apps.example.org.")
    if local and domain != "localhost" and not domain.endswith(".localhost"):
        raise BadEnvironment(
            f"PORTAL_APPS_DOMAIN is {text}, but the embedded cluster speaks plain HTTP, over which keys could be read "
            "on the way. Use a name that ends in .localhost, or a real cluster with HTTPS (PORTAL_CLUSTER)."
        )
    return domain


def _redis(text: str) -> str:
    if text != MEMORY and urlsplit(text).scheme not in {"redis", "rediss", "unix"}:
        raise BadEnvironment(f"REDIS_URL is {text!r}; it must start with redis://, rediss:// or unix://.")
    return text


def _cluster(text: str) -> str:
    if text in {"local", IN_CLUSTER}:
        return text
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise BadEnvironment(
            f"PORTAL_CLUSTER is {text!r}; it must be 'local', '{IN_CLUSTER}' or the path of a kubeconfig file."
        )
    return str(path)


def _smtp(text: str) -> str | None:
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in {"smtp", "smtps", "smtp+starttls"} or not parts.hostname:
        raise BadEnvironment(
            "PORTAL_SMTP_URL must look like smtp://user:password@host:25, smtps://… or smtp+starttls://…"
        )
    return text


def _egress(text: str) -> tuple[str, ...]:
    """Networks (10.0.0.0/8), addresses and host names, separated by commas or spaces."""
    entries = tuple(entry for entry in re.split(r"[,\s]+", text) if entry)
    for entry in entries:
        if "/" in entry or entry.replace(".", "").isdecimal():
            try:
                ipaddress.ip_network(entry, strict=False)
            except ValueError as error:
                raise BadEnvironment(f"PORTAL_EGRESS_ALLOW has {entry!r}: {error}") from error
    return entries


def _image(name: str, text: str) -> str:
    try:
        parse_reference(text)
    except SpecError as error:
        raise BadEnvironment(
            f"{name} must be an image's reference such as registry.example.org/mlportal/tools:1: {error.message}"
        ) from error
    return text


def _seconds(name: str, text: str, *, least: float = 0) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise BadEnvironment(f"{name} is {text!r}; it must be a number of seconds.") from error
    if not least <= value < 86_400:
        raise BadEnvironment(f"{name} is {text!r}; it must be between {least:g} and 86400 seconds.")
    return value


def _days(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 3650:
        raise BadEnvironment(f"{name} is {text!r}; it must be a whole number of days from 1 to 3650.")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    raise BadEnvironment(f"{name} is {text!r}; it must be 1 or 0.")
