"""Pages of dev instances."""

from __future__ import annotations

from django.urls import path

from apps.instances import views, views_changing, views_handing, views_ports
from apps.instances.lifetime import views as lifetime

app_name = "instances"

urlpatterns = [
    path("instances", views.InstanceList.as_view(), name="list"),
    path("instances/new", views.NewInstance.as_view(), name="new"),
    path("instances/new/panel", views.Panel.as_view(), name="panel"),
    path("instances/<uuid:pk>", views.InstanceDetail.as_view(), name="detail"),
    path("instances/<uuid:pk>/start", views.Start.as_view(), name="start"),
    path("instances/<uuid:pk>/stop", views.Stop.as_view(), name="stop"),
    path("instances/<uuid:pk>/restart", views.Restart.as_view(), name="restart"),
    path("instances/<uuid:pk>/delete", views.Delete.as_view(), name="delete"),
    path("instances/<uuid:pk>/change", views_changing.ChangeInstance.as_view(), name="change"),
    path("instances/<uuid:pk>/change/panel", views_changing.ChangePanel.as_view(), name="change-panel"),
    path("instances/<uuid:pk>/enter", views.Enter.as_view(), name="enter"),
    path("instances/<uuid:pk>/editor", views.EditorButton.as_view(), name="editor"),
    path("instances/<uuid:pk>/ssh", views.SshState.as_view(), name="ssh"),
    path("instances/<uuid:pk>/rename", views_handing.Rename.as_view(), name="rename"),
    path("instances/<uuid:pk>/clone", views_handing.Clone.as_view(), name="clone"),
    path("instances/<uuid:pk>/transfer", views_handing.Transfer.as_view(), name="transfer"),
    path("instances/<uuid:pk>/share", views_handing.Share.as_view(), name="share"),
    path("instances/<uuid:pk>/unshare", views_handing.Unshare.as_view(), name="unshare"),
    path("instances/<uuid:pk>/ports", views_ports.Ports.as_view(), name="ports"),
    path("instances/<uuid:pk>/port-close", views_ports.ClosePort.as_view(), name="port-close"),
    path("instances/<uuid:pk>/port-share", views_ports.SharePort.as_view(), name="port-share"),
    path("instances/<uuid:pk>/port-unshare", views_ports.UnsharePort.as_view(), name="port-unshare"),
    path("instances/<uuid:pk>/port-enter", views_ports.EnterPort.as_view(), name="port-enter"),
    path("instances/<uuid:pk>/startup", views.StartupState.as_view(), name="startup"),
    path("instances/<uuid:pk>/key", views.RevealKey.as_view(), name="key"),
    path("instances/<uuid:pk>/rotate-key", views.RotateKey.as_view(), name="rotate-key"),
    path("instances/<uuid:pk>/keep", lifetime.Keep.as_view(), name="keep"),
    path("instances/<uuid:pk>/end", lifetime.SetEnd.as_view(), name="end"),
    path("instances/<uuid:pk>/log/start", views.StartLog.as_view(), name="start-log"),
    path("instances/<uuid:pk>/log/tail", views.LogTail.as_view(), name="log-tail"),
    path("instances/<uuid:pk>/<slug:tab>", views.InstanceDetail.as_view(), name="tab"),
]
