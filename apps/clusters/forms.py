"""Forms for clusters."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from apps.clusters.models import Exposure

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class NamespacesField(forms.CharField):
    """Names separated by commas or spaces; the value is a list."""

    def prepare_value(self, value: Any) -> Any:
        """A list as text."""
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return (super().to_python(value) or "").replace(",", " ").split()


class SettingsForm(forms.Form):
    """How instances on a cluster are reached, and where volumes come from."""

    more = ("gateway_listener", "ingress_class", "ingress_namespaces", "storage_class", "apps_port", "user_namespaces")

    apps_domain = forms.CharField(
        label=gettext_lazy("Domain of the instances"),
        help_text=gettext_lazy(
            "Every instance gets a host below it. It must be another domain than the portal's, and *.domain must lead "
            "to the cluster's ingress or Gateway."
        ),
        widget=forms.TextInput(attrs={"placeholder": "apps.example.net", **_PLAIN}),
    )
    apps_scheme = forms.ChoiceField(label=gettext_lazy("Reached by"), choices=[("https", "https"), ("http", "http")])
    apps_port = forms.IntegerField(
        label=gettext_lazy("Port"),
        initial=0,
        min_value=0,
        max_value=65535,
        help_text=gettext_lazy("0 means the usual one."),
    )
    exposure = forms.ChoiceField(
        label=gettext_lazy("Route of an instance"),
        choices=Exposure.choices,
        initial=Exposure.INGRESS,
        help_text=gettext_lazy(
            "An Ingress or an HTTPRoute is made for each instance. To the portal's own gateway leads one route for "
            "*.domain, which you make once; nothing in the cluster changes when an instance starts. Changed while "
            "instances run, each is reached in the new way at once, and its old route goes after that: nobody has to "
            "stop anything. The permissions for both kinds of routes are needed meanwhile."
        ),
    )
    gateway_namespace = forms.CharField(
        label=gettext_lazy("Namespace of the Gateway"), required=False, widget=forms.TextInput(attrs=_PLAIN)
    )
    gateway_name = forms.CharField(
        label=gettext_lazy("Gateway"),
        required=False,
        help_text=gettext_lazy("It must let in routes from the namespaces of queues; the check says whether it does."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    gateway_listener = forms.CharField(
        label=gettext_lazy("Listener of the Gateway"),
        required=False,
        help_text=gettext_lazy("Left empty, every listener that takes the route."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    ingress_class = forms.CharField(
        label=gettext_lazy("Ingress class"),
        required=False,
        help_text=gettext_lazy("Left empty, the cluster's default."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    ingress_namespaces = NamespacesField(
        label=gettext_lazy("Namespaces of the ingress controller or Gateway"),
        required=False,
        initial="ingress-nginx, kube-system, traefik",
        help_text=gettext_lazy("Network policies let nobody else in to the instances."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    storage_class = forms.CharField(
        label=gettext_lazy("Storage class"),
        required=False,
        help_text=gettext_lazy("Left empty, the cluster's default."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    user_namespaces = forms.BooleanField(
        label=gettext_lazy("User namespaces"),
        required=False,
        help_text=gettext_lazy("Root in a pod is nobody on the node. Needs Kubernetes 1.33 or later."),
    )


class KubeconfigForm(forms.Form):
    """New credentials."""

    kubeconfig = forms.CharField(
        label=gettext_lazy("Kubeconfig"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, **_PLAIN}),
        help_text=gettext_lazy(
            "The output of: kubectl config view --minify --flatten --raw. It must hold a token or a client "
            "certificate; programs and paths of files are refused. It is stored encrypted."
        ),
    )


class AbandonForm(forms.Form):
    """The cluster's name, typed by whoever means it."""

    confirm = forms.CharField(
        label=gettext_lazy("Name of the cluster"),
        strip=True,
        help_text=gettext_lazy("Type it to say that you mean this cluster."),
        widget=forms.TextInput(attrs=_PLAIN),
    )


class ClusterForm(KubeconfigForm, SettingsForm):
    """A new cluster."""

    name = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))

    field_order = ("name", "kubeconfig", "apps_domain", "apps_scheme", "exposure")
