"""REST routes of the base: audit and the OpenAPI document."""

from django.urls import path
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import AllowAny
from rest_framework.routers import SimpleRouter

from apps.core.api import AuditViewSet, TroubleViewSet

router = SimpleRouter(trailing_slash=False)
router.register("audit", AuditViewSet, basename="audit")
router.register("troubles", TroubleViewSet, basename="trouble")

urlpatterns = [
    *router.urls,
    path(
        "openapi.json",
        SpectacularAPIView.as_view(
            renderer_classes=[OpenApiJsonRenderer], permission_classes=[AllowAny], authentication_classes=[]
        ),
        name="openapi",
    ),
]
