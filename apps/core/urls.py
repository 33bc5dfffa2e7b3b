"""Addresses of the base."""

from django.urls import path

from apps.core import preferences, signing_in, views

app_name = "core"
urlpatterns = [
    path("", views.Home.as_view(), name="home"),
    path("audit", views.Audit.as_view(), name="audit"),
    path("sign-in", signing_in.SignIn.as_view(), name="sign-in"),
    path("sign-out", signing_in.SignOut.as_view(), name="sign-out"),
    path("password", signing_in.ChangePassword.as_view(), name="password"),
    path("preferences/language", preferences.Language.as_view(), name="language"),
    path("preferences/theme", preferences.Theme.as_view(), name="theme"),
    path("preferences/queue", preferences.ChooseQueue.as_view(), name="choose-queue"),
    path("preferences/queues", preferences.Queues.as_view(), name="queues"),
    path("livez", views.Alive.as_view(), name="livez"),
    path("readyz", views.Ready.as_view(), name="readyz"),
]
