"""Pages of flows and runs."""

from __future__ import annotations

from django.urls import path

from apps.flows import form_views, views, views_runs

app_name = "flows"

urlpatterns = [
    path("flows", views.FlowList.as_view(), name="list"),
    path("flows/new", form_views.NewFlow.as_view(), name="new"),
    path("flows/new/panel", form_views.Panel.as_view(), name="panel"),
    path("flows/<uuid:pk>", views.FlowDetail.as_view(), name="flow"),
    path("flows/<uuid:pk>/edit", form_views.EditFlow.as_view(), name="edit"),
    path("flows/<uuid:pk>/edit-yaml", form_views.EditYaml.as_view(), name="edit-yaml"),
    path("flows/<uuid:pk>/run", views.RunNow.as_view(), name="run-now"),
    path("flows/<uuid:pk>/pause", views.Pause.as_view(), name="pause"),
    path("flows/<uuid:pk>/resume", views.Resume.as_view(), name="resume"),
    path("flows/<uuid:pk>/delete", views.Delete.as_view(), name="delete"),
    path("flows/<uuid:pk>/secret", views.NewSecret.as_view(), name="secret"),
    path("flows/<uuid:pk>/<slug:tab>", views.FlowDetail.as_view(), name="flow-tab"),
    path("runs", views_runs.RunList.as_view(), name="runs"),
    path("runs/<uuid:pk>", views_runs.RunDetail.as_view(), name="run"),
    path("runs/<uuid:pk>/cancel", views_runs.Cancel.as_view(), name="cancel"),
    path("runs/<uuid:pk>/give-up", views_runs.GiveUp.as_view(), name="give-up"),
    path("runs/<uuid:pk>/rerun", views_runs.Rerun.as_view(), name="rerun"),
    path("runs/<uuid:pk>/<slug:tab>", views_runs.RunDetail.as_view(), name="run-tab"),
    path("attempts/<uuid:pk>/log", views_runs.LogPart.as_view(), name="log-part"),
]
