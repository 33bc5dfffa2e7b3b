"""Pages of the fleet."""

from __future__ import annotations

from django.urls import path

from apps.clusters import views

app_name = "clusters"

urlpatterns = [
    path("clusters", views.ClusterList.as_view(), name="list"),
    path("clusters/new", views.NewCluster.as_view(), name="new"),
    path("clusters/<uuid:pk>", views.ClusterPage.as_view(), name="detail"),
    path("clusters/<uuid:pk>/settings", views.ChangeSettings.as_view(), name="settings"),
    path("clusters/<uuid:pk>/credentials", views.ChangeCredentials.as_view(), name="credentials"),
    path("clusters/<uuid:pk>/check/run", views.CheckCluster.as_view(), name="check-run"),
    path("clusters/<uuid:pk>/remove", views.RemoveCluster.as_view(), name="remove"),
    path("clusters/<uuid:pk>/abandon", views.AbandonCluster.as_view(), name="abandon"),
    path("clusters/<uuid:pk>/<slug:tab>", views.ClusterPage.as_view(), name="tab"),
]
