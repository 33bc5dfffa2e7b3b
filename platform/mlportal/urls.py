"""Root addresses. Each app keeps its own `urls.py` (pages) and `api_urls.py` (REST), mounted here.

Pages hang below the root, because an app owns several first segments (`flows/`, `runs/`).
"""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from apps.core.api import Missing
from mlportal.installed import having

urlpatterns: list[URLPattern | URLResolver] = [
    *(path("", include(module)) for module in having("urls")),
    path("api/v1/", include(([path("", include(module)) for module in having("api_urls")], "api"))),
    path("api/<path:rest>", Missing.as_view(), name="api-missing"),
]

handler400 = "apps.core.views.unreadable"
handler500 = "apps.core.views.fault"
