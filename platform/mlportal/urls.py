"""Root addresses. Each app keeps its own `urls.py` (pages) and `api_urls.py` (REST); this table says where they go."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from django.views.i18n import JavaScriptCatalog

from mlportal import installed

PAGES = (
    ("", "apps.core.urls"),
    ("", "apps.tenants.urls"),
    ("", "apps.clusters.urls"),
    ("", "apps.catalog.urls"),
    ("", "apps.storage.urls"),
    ("", "apps.instances.urls"),
    ("", "apps.flows.urls"),
)
"""Every app's pages hang below the root: an app owns several first segments (`flows/`, `runs/`)."""

_pages = frozenset(installed.having("urls"))
_rest = installed.having("api_urls")

urlpatterns: list[URLPattern | URLResolver] = [
    path("i18n/", include("django.conf.urls.i18n")),
    path("i18n/js/", JavaScriptCatalog.as_view(packages=["mlportal"]), name="javascript-catalog"),
    *(path(prefix, include(module)) for prefix, module in PAGES if module in _pages),
    path("api/v1/", include(([path("", include(module)) for module in _rest], "api"))),
]
