"""The one door to a cluster's REST API: dicts in, dicts out, and only `KubeError` out of it.

`Cluster` uses the official client's connection pool (`kubernetes.client.rest`) and nothing else of it: its typed models
raise on incomplete answers after the server has acted, and cost several times the memory. ``kubernetes`` is imported at
the first request because the import takes about half a second. This is the only module that imports it.

Every write goes out once. There are no hidden repeats, redirects or proxies: a repeat is the caller's decision, after
reading ``error.maybe_done`` (GET first: a repeated create is charged to the quota again, failure F12).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from .credentials import Credentials
from .errors import BadAnswer, KubeError, NotFound, PermissionDenied, TlsFailure, Unreachable, error_from_status
from .kinds import kind_named
from .names import FIELD_MANAGER, selector_text

if TYPE_CHECKING:
    from kubernetes.client.rest import RESTClientObject

Obj = dict[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON = "application/json"
_POOL_SIZE = 24
_EXPIRED = 410


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes


class Cluster:
    """One cluster, reached with one set of credentials. Safe to share between threads; connections are reused.

    ``connect_timeout_s`` bounds the TCP and TLS handshake, ``read_timeout_s`` the wait for each piece of an answer. A
    write that begins within the first quarter of a worker's lease must be over before the lease is.
    ``on_denied`` hears of every request that the account may not make, before the caller does.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 20.0,
        on_denied: Callable[[PermissionDenied], None] | None = None,
    ) -> None:
        self.credentials = credentials
        self._on_denied = on_denied
        self._timeout = (connect_timeout_s, read_timeout_s)
        self._lock = threading.Lock()
        self._rest: RESTClientObject | None = None

    def close(self) -> None:
        """Close all idle connections. The object may be used again afterwards."""
        with self._lock:
            rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()

    # -- writes ------------------------------------------------------------------------------------------------

    def apply(self, obj: Mapping[str, Any], *, dry_run: bool = False, force: bool = True) -> Obj:
        """Server-side apply of a whole object as field manager ``mlportal``; the stored object comes back.

        Level-triggered and idempotent: an unchanged object keeps its resourceVersion. ``dry_run`` runs admission (and
        so the quota) without storing. Without ``force`` another manager's field raises `Conflict`.
        """
        kind, namespace, name = _address(obj)
        query: dict[str, str] = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        path = kind_named(kind).path(namespace, name)
        return self._json("PATCH", path, query, body=obj, content_type=_APPLY)

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Obj:
        """POST an object that is made once (task pods). Raises `AlreadyExists` when the name is taken."""
        kind, namespace, _name = _address(obj)
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        return self._json("POST", kind_named(kind).path(namespace), query, body=obj)

    def patch_merge(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str | None = None,
    ) -> Obj:
        """JSON merge patch (RFC 7386): a None removes a field, a list replaces a list.

        Put ``metadata.resourceVersion`` into the patch to make it conditional (`Conflict`); another ``metadata.uid``
        than the object's is `Invalid`.
        """
        path = kind_named(kind).path(namespace, name, subresource)
        return self._json("PATCH", path, {"fieldManager": FIELD_MANAGER}, body=patch, content_type=_MERGE)

    def scale(self, namespace: str, name: str, replicas: int) -> Obj:
        """Set a StatefulSet's replicas through its scale subresource and return the Scale object."""
        return self.patch_merge("StatefulSet", namespace, name, {"spec": {"replicas": replicas}}, subresource="scale")

    def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
        propagation: Propagation = "Background",
    ) -> Obj:
        """Delete one object. Raises `NotFound` when there is none and `Conflict` when a precondition does not hold.

        Returns the object while finalizers or a grace period keep it, else the server's Status. Give ``uid`` whenever
        a row remembers one, so that another object of the same name is never the one that goes (failure F5).
        """
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        preconditions = {
            key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
        }
        if preconditions:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return self._json("DELETE", kind_named(kind).path(namespace, name), {}, body=options)

    # -- reads -------------------------------------------------------------------------------------------------

    def get(self, kind: str, namespace: str | None, name: str) -> Obj:
        """The live object; raises `NotFound`."""
        return self._json("GET", kind_named(kind).path(namespace, name), {})

    def list(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        limit: int = 500,
    ) -> Iterator[Obj]:
        """All objects of a kind, page by page (``limit`` each), with ``kind`` and ``apiVersion`` filled in.

        A list that expires between two pages is started again from its beginning; then an object may come twice.
        """
        row = kind_named(kind)
        query: dict[str, str] = {"limit": str(limit)}
        if labels:
            query["labelSelector"] = selector_text(labels)
        if fields:
            query["fieldSelector"] = selector_text(fields)
        restarted = False
        while True:
            try:
                page = self._json("GET", row.path(namespace), query)
            except KubeError as error:
                if error.status != _EXPIRED or "continue" not in query or restarted:
                    raise
                restarted = True
                del query["continue"]
                continue
            for item in page.get("items") or ():
                item.setdefault("kind", row.name)
                item.setdefault("apiVersion", row.api_version)
                yield item
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return
            query["continue"] = following

    def version(self) -> Obj:
        """The server's /version: ``major``, ``minor``, ``gitVersion`` ..."""
        return self._json("GET", "/version", {})

    def served(self, group: str) -> tuple[str, ...]:
        """The versions in which the server offers an API group, the preferred one first; none when it does not."""
        try:
            answer = self._json("GET", f"/apis/{group}", {})
        except NotFound:
            return ()
        return tuple(str(row.get("version", "")) for row in answer.get("versions") or ())

    def whoami(self) -> str:
        """The name of the account behind the credentials (SelfSubjectReview), empty when the server does not tell."""
        row = kind_named("SelfSubjectReview")
        answer = self._json("POST", row.path(), {}, body={"apiVersion": row.api_version, "kind": row.name})
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))

    def access_review(
        self,
        *,
        verb: str,
        kind: str,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> bool:
        """Whether these credentials may do ``verb`` on ``kind`` (SelfSubjectAccessReview)."""
        row = kind_named(kind)
        attributes = {
            "verb": verb,
            "group": row.group,
            "resource": row.plural,
            "namespace": namespace,
            "name": name,
            "subresource": subresource,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        answer = self._json("POST", kind_named("SelfSubjectAccessReview").path(), {}, body=review)
        return bool((answer.get("status") or {}).get("allowed"))

    def log_tail(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail_lines: int | None = 200,
        limit_bytes: int | None = 1 << 20,
        since_time: str | None = None,
        previous: bool = False,
        timestamps: bool = False,
    ) -> bytes:
        """The end of a container's log as bytes (a log need not be UTF-8).

        ``since_time`` is RFC 3339 with whole seconds' meaning; ``previous`` reads the container that ended before
        this one. Raises `BadRequest` while the container has not started.
        """
        query = {"container": container}
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        if limit_bytes is not None:
            query["limitBytes"] = str(limit_bytes)
        if since_time is not None:
            query["sinceTime"] = since_time
        if previous:
            query["previous"] = "true"
        if timestamps:
            query["timestamps"] = "true"
        return self._request("GET", kind_named("Pod").path(namespace, pod, "log"), query)

    # -- transport ---------------------------------------------------------------------------------------------

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
    ) -> Obj:
        raw = self._request(method, path, query, body=body, content_type=content_type)
        answer = _decode(raw)
        if answer is None:
            raise BadAnswer(
                f"{method} {path} was answered with something that is not a JSON object",
                status=200,
                maybe_done=method != "GET",
            )
        return answer

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
    ) -> bytes:
        url = self.credentials.server + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "User-Agent": "mlportal", **self.credentials.headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        answer = self._send(method, url, headers, body)
        if answer.status >= 300:
            seconds = _seconds(answer.headers.get("Retry-After"))
            status = _decode(answer.data) or {"message": answer.data[:500].decode("utf-8", "replace")}
            error = error_from_status(status, http_status=answer.status, method=method, retry_after_s=seconds)
            if isinstance(error, PermissionDenied) and self._on_denied is not None:
                self._on_denied(error)
            raise error
        return answer.data

    def _send(self, method: str, url: str, headers: dict[str, str], body: Mapping[str, Any] | None) -> _Answer:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - see the module's docstring
        from urllib3 import exceptions as transport  # noqa: PLC0415 - comes with `kubernetes`

        server, wrote = self.credentials.server, method != "GET"
        pool: Any = self._pool()  # the client's annotations stop at its door
        # A kept connection may have been closed by the server just now; a read may then be repeated, once.
        for last in (wrote, True):
            try:
                answer = pool.request(method, url, headers=headers, body=body, _request_timeout=self._timeout)
                return _Answer(status=answer.status, headers=answer.headers, data=answer.read())
            except ApiException as error:
                raise TlsFailure(f"no trusted connection to {server}: {error.reason}") from error
            except (transport.ConnectTimeoutError, transport.NewConnectionError) as error:
                raise Unreachable(f"{server} does not answer: {error}") from error
            except transport.ProtocolError as error:
                if last:
                    raise Unreachable(f"{server} broke off: {error}", maybe_done=wrote) from error
            except (transport.HTTPError, OSError) as error:
                raise Unreachable(f"{server} broke off: {error}", maybe_done=wrote) from error
        raise AssertionError("the second round always returns or raises")

    def _pool(self) -> RESTClientObject:
        with self._lock:
            if self._rest is None:
                self._rest = _open_pool(self.credentials)
            return self._rest


def _open_pool(credentials: Credentials) -> RESTClientObject:
    from kubernetes.client import Configuration  # noqa: PLC0415 - half a second, paid at the first request
    from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415

    # proxy="" keeps HTTP(S)_PROXY of the environment out; retries=False also means: follow no redirect.
    configuration = Configuration(
        host=credentials.server,
        proxy="",
        no_proxy="*",
        connection_pool_maxsize=_POOL_SIZE,
        tls_server_name=credentials.tls_server_name,
    )
    configuration.retries = False
    configuration.keep_alive = True
    rest = RESTClientObject(configuration)
    if credentials.addresses:
        from kubekit.pinned import pools  # noqa: PLC0415 - urllib3 comes with `kubernetes`

        rest.pool_manager.pool_classes_by_scheme = pools(credentials.addresses)
    if credentials.secure:
        rest.pool_manager.connection_pool_kw["ssl_context"] = credentials.ssl_context()
    return rest


def _address(obj: Mapping[str, Any]) -> tuple[str, str | None, str]:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace"), metadata["name"]


def _decode(raw: bytes) -> Obj | None:
    try:
        answer = json.loads(raw)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isdigit() else None
