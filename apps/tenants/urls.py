"""Pages of queues, teams, people and the account."""

from __future__ import annotations

from django.urls import path

from apps.tenants import views, views_lifetime, views_people, views_ssh

app_name = "tenants"

urlpatterns = [
    path("queues", views.QueueList.as_view(), name="queues"),
    path("queues/new", views.NewQueue.as_view(), name="queue-new"),
    path("queues/<uuid:pk>", views.QueuePage.as_view(), name="queue"),
    path("queues/<uuid:pk>/quota", views.ChangeQuota.as_view(), name="queue-quota"),
    path("queues/<uuid:pk>/delete", views.DeleteQueue.as_view(), name="queue-delete"),
    path("queues/<uuid:pk>/check/result", views.QueueCheck.as_view(), name="queue-check-result"),
    path("queues/<uuid:pk>/recalculate", views.Recalculate.as_view(), name="queue-recalculate"),
    path("queues/<uuid:pk>/<slug:tab>", views.QueuePage.as_view(), name="queue-tab"),
    path("teams", views_people.TeamList.as_view(), name="teams"),
    path("teams/new", views_people.NewTeam.as_view(), name="team-new"),
    path("teams/<uuid:pk>", views_people.TeamPage.as_view(), name="team"),
    path("teams/<uuid:pk>/edit", views_people.EditTeam.as_view(), name="team-edit"),
    path("teams/<uuid:pk>/own-images", views_people.OwnImages.as_view(), name="team-own-images"),
    path("teams/<uuid:pk>/lifetime", views_lifetime.TeamLifetime.as_view(), name="team-lifetime"),
    path("teams/default-lifetime", views_lifetime.DefaultLifetime.as_view(), name="default-lifetime"),
    path("teams/<uuid:pk>/add", views_people.AddMembers.as_view(), name="team-add"),
    path("teams/<uuid:pk>/delete", views_people.DeleteTeam.as_view(), name="team-delete"),
    path("teams/<uuid:pk>/members/<uuid:user>/role", views_people.SetRole.as_view(), name="member-role"),
    path("teams/<uuid:pk>/members/<uuid:user>/remove", views_people.RemoveMember.as_view(), name="member-remove"),
    path("teams/<uuid:pk>/<slug:tab>", views_people.TeamPage.as_view(), name="team-tab"),
    path("users", views_people.UserList.as_view(), name="users"),
    path("users/new", views_people.NewUser.as_view(), name="user-new"),
    path("users/<uuid:pk>/deactivate", views_people.UserAction.as_view(), name="user-deactivate"),
    path("users/<uuid:pk>/activate", views_people.UserAction.as_view(), name="user-activate"),
    path("users/<uuid:pk>/make-admin", views_people.UserAction.as_view(), name="user-make-admin"),
    path("users/<uuid:pk>/unmake-admin", views_people.UserAction.as_view(), name="user-unmake-admin"),
    path("users/<uuid:pk>/reset-password", views_people.ResetPassword.as_view(), name="user-reset-password"),
    path("account", views_people.Account.as_view(), name="account"),
    path("account/tokens/<uuid:pk>/revoke", views_people.RevokeToken.as_view(), name="token-revoke"),
    path("account/ssh-keys", views_ssh.SshKeys.as_view(), name="ssh-keys"),
    path("account/ssh-keys/<uuid:pk>/delete", views_ssh.DeleteSshKey.as_view(), name="ssh-key-delete"),
]
