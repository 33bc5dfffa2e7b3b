"""Pages of volumes."""

from __future__ import annotations

from django.urls import path

from apps.storage import views

app_name = "storage"

urlpatterns = [
    path("volumes", views.VolumeList.as_view(), name="volumes"),
    path("volumes/new", views.NewVolume.as_view(), name="new"),
    path("volumes/<uuid:pk>", views.VolumePage.as_view(), name="volume"),
    path("volumes/<uuid:pk>/expand", views.ExpandVolume.as_view(), name="expand"),
    path("volumes/<uuid:pk>/delete", views.DeleteVolume.as_view(), name="delete"),
    path("volumes/<uuid:pk>/<slug:tab>", views.VolumePage.as_view(), name="tab"),
]
