"""Pages of teams, people, and one's own account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.adminpages import AdminPage
from apps.core.pages import (
    Action,
    ActionPage,
    Choice,
    Column,
    FilterField,
    FormPage,
    ListPage,
    ObjectFormPage,
    ObjectPage,
    PortalPage,
    Tab,
    find,
    history_tab,
    url,
)
from apps.tenants import departures, imagerules, people, selectors, teams, tokens
from apps.tenants.forms import ImageRuleForm, MembersForm, RoleForm, TeamForm, TokenForm, UserForm
from apps.tenants.lifetimes import Policies
from apps.tenants.models import ApiToken, Role, Team, User

YES_NO = (Choice(value="yes", label=gettext_lazy("yes")), Choice(value="no", label=gettext_lazy("no")))


class TeamList(ListPage):
    """One's teams; all of them for administrators."""

    section = "teams"
    title = gettext_lazy("Teams")
    kind = "team"
    spec = selectors.TEAM_LIST
    row_template = "tenants/team_row.html"
    new_label, new_url = gettext_lazy("New team"), "tenants:team-new"
    empty_title = gettext_lazy("There is no team yet.")
    empty_text = gettext_lazy("A team is people who share queues. An administrator makes it and adds its members.")
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("Description"), narrow=False),
        Column(label=gettext_lazy("Members"), numeric=True),
        Column(label=gettext_lazy("Queues"), numeric=True),
    )

    def rows(self) -> QuerySet[Team]:
        return selectors.teams(self.actor)

    def filters(self) -> Sequence[FilterField]:
        return (FilterField(name="name", label=_("Search")),)


def _members(view: Any, team: Team) -> Mapping[str, Any]:
    members = list(selectors.members(team))
    ended = departures.names([row.user_id for row in members], departures.queues_of_team(team.pk))
    for row in members:
        row.ended = [] if row.user.is_platform_admin else ended.get(row.user_id, [])  # type: ignore[attr-defined]
    return {
        "members": members,
        "queues": selectors.queues(view.actor).filter(team=team).order_by("name"),
        "may_manage": teams.is_team_admin(view.actor, team),
        "roles": Role.choices,
        "me": view.actor.user_id,
        "policy": Policies().of(team.pk),
        "may_rule": view.actor.is_admin,
    }


class TeamPage(ObjectPage):
    """A team: members and queues."""

    section = "teams"
    kind = "team"
    tabs = (
        Tab(slug="members", label=gettext_lazy("Members"), template="tenants/team_members.html", context=_members),
        history_tab(),
    )

    def rows(self) -> QuerySet[Team]:
        return selectors.teams(self.actor)

    def actions(self, obj: Team) -> Sequence[Action]:
        found: list[Action] = []
        if teams.is_team_admin(self.actor, obj):
            found.append(
                Action(
                    verb="members",
                    label=_("Add members"),
                    url=url("tenants:team-add", obj),
                    icon="user-plus",
                    post=False,
                    primary=True,
                )
            )
            found.append(
                Action(verb="edit", label=_("Edit"), url=url("tenants:team-edit", obj), icon="pencil", post=False)
            )
        if self.actor.is_admin:
            found.append(
                Action(
                    verb="own-images",
                    label=_("Own images"),
                    url=url("tenants:team-own-images", obj),
                    icon="package",
                    post=False,
                )
            )
            found.append(
                Action(
                    verb="delete",
                    label=_("Delete"),
                    url=url("tenants:team-delete", obj),
                    icon="trash",
                    lost=_("The team “%(name)s” and its list of members are deleted.") % {"name": obj.name},
                )
            )
        return found


class NewTeam(AdminPage, FormPage):
    """A new team."""

    section = "teams"
    title = gettext_lazy("New team")
    submit_label = gettext_lazy("Make the team")
    form = TeamForm

    def submit(self, data: dict[str, Any]) -> str:
        return teams.create(actor=self.actor, **data).get_absolute_url()


class _OfTeam(ObjectFormPage):
    section = "teams"

    def rows(self) -> QuerySet[Team]:
        return selectors.teams(self.actor)

    def allow(self, obj: Team) -> None:
        teams.require_team_admin(self.actor, obj)


class EditTeam(_OfTeam):
    """Name and description."""

    title = gettext_lazy("Edit team")
    form = TeamForm

    def initial(self) -> dict[str, Any]:
        return {"name": self.object.name, "description": self.object.description}

    def submit(self, data: dict[str, Any]) -> str:
        teams.update(actor=self.actor, team=self.object, name=data["name"], description=data["description"])
        return str(self.object.get_absolute_url())


class OwnImages(AdminPage, _OfTeam):
    """Whether its members may start images that are not in the catalogue, and from where."""

    title = gettext_lazy("Own images")
    form = ImageRuleForm

    def initial(self) -> dict[str, Any]:
        return {"own_images": self.object.own_images, "image_prefixes": "\n".join(self.object.image_prefixes)}

    def submit(self, data: dict[str, Any]) -> str:
        imagerules.allow(
            actor=self.actor,
            team=self.object,
            own_images=data["own_images"],
            image_prefixes=data["image_prefixes"].splitlines(),
        )
        return str(self.object.get_absolute_url())


class AddMembers(_OfTeam):
    """A pasted list."""

    title = gettext_lazy("Add members")
    submit_label = gettext_lazy("Add these people")
    form = MembersForm

    def submit(self, data: dict[str, Any]) -> str:
        teams.add_members(actor=self.actor, team=self.object, text=data["members"])
        return str(self.object.get_absolute_url())


class _OnTeam(ActionPage):
    def rows(self) -> QuerySet[Team]:
        return selectors.teams(self.actor)

    def member(self, team: Team) -> User:
        """The member that the button stands beside."""
        found: User = find(User.objects.as_system().filter(memberships__team=team), self.kwargs["user"])
        return found

    def post(self, request: HttpRequest, pk: UUID, **kwargs: Any) -> HttpResponse:
        """The member's id is in ``kwargs``, which the view has kept."""
        return super().post(request, pk)


class DeleteTeam(_OnTeam):
    """The button."""

    done = gettext_lazy("The team is deleted.")

    def act(self, obj: Team) -> str:
        teams.delete(actor=self.actor, team=obj)
        return reverse("tenants:teams")


class SetRole(_OnTeam):
    """A member's role."""

    done = gettext_lazy("The role is changed.")

    def act(self, obj: Team) -> None:
        form = RoleForm(self.request.POST)
        role = form.cleaned_data["role"] if form.is_valid() else ""
        teams.set_role(actor=self.actor, team=obj, user=self.member(obj), role=role)


class RemoveMember(_OnTeam):
    """Out of the team."""

    done = gettext_lazy("The person is no longer in the team.")

    def act(self, obj: Team) -> str | None:
        user = self.member(obj)
        teams.remove_member(actor=self.actor, team=obj, user=user)
        return reverse("tenants:teams") if user.pk == self.actor.user_id and not self.actor.is_admin else None


# --- people ------------------------------------------------------------------------------------------------------


class UserList(AdminPage, ListPage):
    """All accounts."""

    section = "users"
    title = gettext_lazy("Users")
    kind = "user"
    spec = selectors.USER_LIST
    row_template = "tenants/user_row.html"
    new_label, new_url = gettext_lazy("New user"), "tenants:user-new"
    empty_title = gettext_lazy("There is nobody yet.")
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("Mail address"), narrow=False),
        Column(label=gettext_lazy("Role")),
        Column(label=gettext_lazy("Last sign-in"), narrow=False),
        Column(label=gettext_lazy("Made"), sort="created", narrow=False),
        Column(label=""),
    )

    def rows(self) -> QuerySet[User]:
        return selectors.users(self.actor)

    def prepare(self, rows: Sequence[User]) -> None:
        ended = departures.names([row.pk for row in rows])
        for row in rows:
            row.ended = ended.get(row.pk, [])  # type: ignore[attr-defined]

    def filters(self) -> Sequence[FilterField]:
        return (
            FilterField(name="active", label=_("Active"), choices=YES_NO),
            FilterField(name="admin", label=_("Administrator"), choices=YES_NO),
            FilterField(name="name", label=_("Search")),
        )

    def extra(self) -> Mapping[str, Any]:
        return {"me": self.actor.user_id}


class NewUser(AdminPage, FormPage):
    """A new account; a password that was made is shown on the page that follows, once."""

    section = "users"
    title = gettext_lazy("New user")
    submit_label = gettext_lazy("Make the account")
    form = UserForm

    def submit(self, data: dict[str, Any]) -> HttpResponse:
        """The answer itself shows the password: it is stored nowhere, not even in the session."""
        user, made = people.create(actor=self.actor, **data)
        return show_password(self, user, made)


class UserAction(AdminPage, ActionPage):
    """What a button on an account does."""

    def rows(self) -> QuerySet[User]:
        return selectors.users(self.actor)

    def act(self, obj: User) -> str:
        """The verb is the last part of the address."""
        verb = self.request.path.rsplit("/", 1)[-1]
        if verb == "deactivate":
            people.deactivate(actor=self.actor, user=obj)
        elif verb == "activate":
            people.activate(actor=self.actor, user=obj)
        else:
            people.set_admin(actor=self.actor, user=obj, is_platform_admin=verb == "make-admin")
        return reverse("tenants:users")


class ResetPassword(AdminPage, PortalPage):
    """A new password for somebody else."""

    section = "users"

    def post(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Make it and show it once."""
        user: User = find(selectors.users(self.actor), pk)
        return show_password(self, user, people.reset_password(actor=self.actor, user=user))


def show_password(view: PortalPage, user: User, password: str) -> HttpResponse:
    """The page with a password that nobody can see again."""
    return view.show_once("tenants/password_once.html", {"person": user, "password": password})


# --- one's own account -------------------------------------------------------------------------------------------


class Account(FormPage):
    """One's tokens: list, make, revoke."""

    section = "account"
    title = gettext_lazy("Account")
    submit_label = gettext_lazy("Make a token")
    template = "tenants/account.html"
    form = TokenForm

    def extra(self) -> Mapping[str, Any]:
        return {"tokens": selectors.tokens(self.actor), "teams": selectors.teams(self.actor).order_by("name")}

    def submit(self, data: dict[str, Any]) -> HttpResponse:
        """Make a token; its text is in this answer and never again."""
        token, text = tokens.create(
            actor=self.actor, id=data["id"], name=data["name"], days=data["days"], scopes=data["scopes"].split()
        )
        fresh = {"form": self.form(), "once": str(uuid4()), "made": token, "made_text": text}
        return self.show_once(self.template, {**fresh, **self.extra()})


class RevokeToken(ActionPage):
    """The button beside a token."""

    done = gettext_lazy("The token is revoked.")

    def rows(self) -> QuerySet[ApiToken]:
        return selectors.tokens(self.actor)

    def act(self, obj: ApiToken) -> str:
        tokens.revoke(actor=self.actor, token=obj)
        return reverse("tenants:account")
