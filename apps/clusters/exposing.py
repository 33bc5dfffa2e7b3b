"""How instances on a cluster are reached: what may be chosen, and who hears when it is chosen anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from apps.clusters.models import Cluster, Exposure
from kubekit.names import is_dns_label, is_dns_name
from kubekit.specs import GatewayRef

#: What leads to one instance, by exposure; to the portal's own gateway one route leads for all of them, made once.
ROUTE_KINDS: Mapping[str, str] = {Exposure.INGRESS: "Ingress", Exposure.HTTPROUTE: "HTTPRoute", Exposure.GATEWAY: ""}
#: A route says all of this, so that a change of any reaches the routes that are there.
OPTIONS = ("exposure", "ingress_class", "gateway_namespace", "gateway_name", "gateway_listener")
Handler = Callable[[UUID, str], None]
_handlers: list[Handler] = []
_let_in: list[Callable[[UUID], None]] = []


def register_change(handler: Handler) -> None:
    """Have ``handler`` called inside the transaction that changes how instances of a cluster are reached: with the
    cluster's id, and the kind of the routes that nobody makes any more (empty when the kind stays)."""
    _handlers.append(handler)


def announce_change(cluster_pk: UUID, *, before: str, after: str) -> None:
    """Let whoever made routes there make them anew; ``before`` and ``after`` are exposures."""
    left = ROUTE_KINDS[before] if before != after else ""
    for handler in _handlers:
        handler(cluster_pk, left)


def register_let_in(handler: Callable[[UUID], None]) -> None:
    """Have ``handler`` called inside the transaction that changes whose namespaces reach a cluster's instances."""
    _let_in.append(handler)


def announce_let_in(cluster_pk: UUID) -> None:
    """Let whoever wrote network policies there write them anew."""
    for handler in _let_in:
        handler(cluster_pk)


def gateway_of(cluster: Cluster) -> GatewayRef | None:
    """What HTTPRoutes are attached to; None where instances are reached otherwise.

    Raises ``kubekit.errors.SpecError`` for a row that names no Gateway.
    """
    if cluster.exposure != Exposure.HTTPROUTE:
        return None
    return GatewayRef(
        namespace=cluster.gateway_namespace, name=cluster.gateway_name, listener=cluster.gateway_listener or None
    )


def errors_of(options: Mapping[str, Any], *, embedded: bool) -> dict[str, str]:
    """What is wrong with these settings of a cluster, by field."""
    exposure = options.get("exposure", Exposure.INGRESS)
    if exposure not in Exposure.values:
        return {"exposure": _("Choose ingress, httproute or gateway.")}
    if exposure != Exposure.HTTPROUTE:
        return {}
    if embedded:
        return {
            "exposure": _(
                "The embedded cluster does not serve the Gateway API. Choose Ingress or the portal's own gateway."
            )
        }
    errors: dict[str, str] = {}
    if not is_dns_label(options.get("gateway_namespace", "")):
        errors["gateway_namespace"] = _("Name the namespace that the Gateway is in.")
    if not is_dns_name(options.get("gateway_name", "")):
        errors["gateway_name"] = _("Name the Gateway that leads to the instances.")
    listener = options.get("gateway_listener", "")
    if listener and not is_dns_name(listener):
        errors["gateway_listener"] = _("This is not the name of a listener.")
    return errors
