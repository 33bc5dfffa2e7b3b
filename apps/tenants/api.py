"""REST for queues, teams and people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.events import Row
from apps.clusters.events_api import EventfulViewSet
from apps.clusters.models import Cluster
from apps.core import refs
from apps.core.api import Item, PortalViewSet, StatefulItem
from apps.tenants import checker, events, imagerules, ledger, people, quotas, selectors, teams, uses
from apps.tenants.api_lifetime import TeamLifetimes
from apps.tenants.models import Membership, Queue, Role, Team, User
from apps.tenants.quotas import Quota


class Ref(serializers.Serializer[Any]):
    """Another object by id and name."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class ShareItem(serializers.Serializer[Any]):
    """One resource: what is used of what there is, in the resource's base unit."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField()


class QueueItem(StatefulItem):
    """A queue with its quota and what is used of it. ``usage`` counts limits; ``limit`` includes the oversell."""

    team = Ref()
    cluster = Ref()
    namespace = serializers.CharField()
    cpu_millis = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    gpus = serializers.DictField(child=serializers.IntegerField())
    storage_bytes = serializers.IntegerField()
    claims = serializers.IntegerField()
    pods = serializers.IntegerField()
    cpu_oversell = serializers.FloatField()
    memory_oversell = serializers.FloatField()
    usage = serializers.DictField(child=ShareItem(), source="usage.shares")
    over_quota = serializers.SerializerMethodField()

    def get_over_quota(self, obj: Any) -> list[str]:
        """The resources whose use is above the limit."""
        return [share.resource for share in obj.usage.over]


class QuotaForm(serializers.Serializer[Any]):
    """The parts of a quota; all optional."""

    cpu_millis = serializers.IntegerField(required=False)
    memory_bytes = serializers.IntegerField(required=False)
    storage_bytes = serializers.IntegerField(required=False)
    gpus = serializers.DictField(child=serializers.IntegerField(min_value=0), required=False)
    claims = serializers.IntegerField(required=False)
    pods = serializers.IntegerField(required=False)
    cpu_oversell = serializers.DecimalField(max_digits=5, decimal_places=2, required=False)
    memory_oversell = serializers.DecimalField(max_digits=5, decimal_places=2, required=False)


class QueueForm(QuotaForm):
    """What a new queue needs; team and cluster by name or id."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    team = serializers.CharField(max_length=100)
    cluster = serializers.CharField(max_length=100)
    cpu_millis = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    storage_bytes = serializers.IntegerField()


class CheckRow(serializers.Serializer[Any]):
    """A resource in the three books: ``ledger`` and ``limits`` are limits, ``quota`` and ``pods`` requests."""

    resource = serializers.CharField()
    ledger = serializers.IntegerField()
    limits = serializers.IntegerField()
    quota = serializers.IntegerField()
    pods = serializers.IntegerField()
    fault = serializers.CharField()


class CheckItem(serializers.Serializer[Any]):
    """Whether ledger, quota and pods agree; ``error`` when the cluster could not be asked."""

    is_good = serializers.BooleanField()
    rows = CheckRow(many=True)
    error = serializers.CharField()


class QueueViewSet(EventfulViewSet):
    """Queues: namespaces with a quota. Administrators make and change them."""

    kind = "queue"
    rows = selectors.queues
    item = QueueItem
    spec = selectors.QUEUE_LIST

    def events_of(self, obj: Queue) -> list[Row]:
        """Those of what lives in it."""
        return events.of(obj, self.actor)

    def prepare(self, rows: Sequence[Queue]) -> None:
        """Usage of all rows in one statement."""
        found = ledger.usages(rows)
        for row in rows:
            row.usage = found[row.pk]  # type: ignore[attr-defined]

    @extend_schema(request=QueueForm, responses={201: QueueItem})
    def create(self, request: Request) -> Response:
        """Make a queue; its namespace follows within seconds."""
        data = self.read(QueueForm, request)
        team = refs.find(Team.objects.for_actor(self.actor), data.pop("team"), field="team")
        cluster = refs.find(Cluster.objects.for_actor(self.actor), data.pop("cluster"), field="cluster")
        name = data.pop("name")
        queue = quotas.create(
            actor=self.actor, id=self.new_id(request), name=name, team=team, cluster=cluster, quota=Quota(**data)
        )
        return self.answer(queue, code=status.HTTP_201_CREATED)

    @extend_schema(request=QuotaForm, responses=QueueItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the quota."""
        queue = self.find(pk)
        return self.answer(quotas.update(actor=self.actor, queue=queue, **self.read(QuotaForm, request)))

    @extend_schema(responses={202: QueueItem})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the empty queue."""
        queue = self.find(pk)
        quotas.delete(actor=self.actor, queue=queue)
        return self.answer(queue, code=status.HTTP_202_ACCEPTED)

    @extend_schema(responses=serializers.ListSerializer(child=serializers.CharField()))
    @action(detail=True, methods=["get"])
    def contents(self, request: Request, pk: str) -> Response:
        """What lives in the queue."""
        return Response(uses.of(self.find(pk).pk))

    @extend_schema(responses=CheckItem)
    @action(detail=True, methods=["get"])
    def check(self, request: Request, pk: str) -> Response:
        """Compare the portal's ledger, the namespace's quota and the pods."""
        return Response(CheckItem(checker.check(self.find(pk))).data)

    @extend_schema(request=None, responses={202: QueueItem})
    @action(detail=True, methods=["post"])
    def recalculate(self, request: Request, pk: str) -> Response:
        """Let the cluster count the use anew."""
        queue = self.find(pk)
        quotas.recalculate(actor=self.actor, queue=queue)
        return self.answer(queue, code=status.HTTP_202_ACCEPTED)


class MemberItem(serializers.Serializer[Any]):
    """A member of a team."""

    user = serializers.CharField(source="user.username")
    user_id = serializers.UUIDField()
    role = serializers.ChoiceField(choices=Role.choices)


class TeamItem(Item):
    """A team with its members."""

    description = serializers.CharField()
    own_images = serializers.BooleanField()
    image_prefixes = serializers.ListField(child=serializers.CharField())
    members = MemberItem(many=True, source="member_rows")


class TeamForm(serializers.Serializer[Any]):
    """What a new team needs."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    description = serializers.CharField(default="", allow_blank=True, max_length=300)


class TeamChange(serializers.Serializer[Any]):
    """What can change of a team."""

    name = serializers.CharField(required=False, max_length=200, trim_whitespace=False)
    description = serializers.CharField(required=False, allow_blank=True, max_length=300)


class ImageRuleForm(serializers.Serializer[Any]):
    """Whether members may use images that are not in the catalogue; ``image_prefixes`` empty: from any registry."""

    own_images = serializers.BooleanField(required=False)
    image_prefixes = serializers.ListField(child=serializers.CharField(max_length=512), required=False, max_length=100)


class MembersForm(serializers.Serializer[Any]):
    """A pasted list: one a line, ``name`` or ``name role``."""

    members = serializers.CharField(max_length=200_000, trim_whitespace=False)


class MemberForm(serializers.Serializer[Any]):
    """One person by name or id."""

    user = serializers.CharField(max_length=100)


class TeamViewSet(TeamLifetimes):
    """Teams and their members."""

    kind = "team"
    rows = Team.objects.for_actor
    item = TeamItem
    spec = selectors.TEAM_LIST

    def prepare(self, rows: Sequence[Team]) -> None:
        """Members of all rows in one statement."""
        members = Membership.objects.as_system().filter(team__in=rows).select_related("user").order_by("user__username")
        by_team: dict[Any, list[Membership]] = {}
        for row in members:
            by_team.setdefault(row.team_id, []).append(row)
        for team in rows:
            team.member_rows = by_team.get(team.pk, [])  # type: ignore[attr-defined]

    @extend_schema(request=TeamForm, responses={201: TeamItem})
    def create(self, request: Request) -> Response:
        """Make a team."""
        team = teams.create(actor=self.actor, id=self.new_id(request), **self.read(TeamForm, request))
        return self.answer(team, code=status.HTTP_201_CREATED)

    @extend_schema(request=TeamChange, responses=TeamItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Rename or describe the team."""
        team = self.find(pk)
        teams.update(actor=self.actor, team=team, **self.read(TeamChange, request))
        return self.answer(team)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a team without queues."""
        teams.delete(actor=self.actor, team=self.find(pk))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=MembersForm, responses=TeamItem)
    @action(detail=True, methods=["post"])
    def members(self, request: Request, pk: str) -> Response:
        """Add members from a list, or change their roles: all of it or nothing."""
        team = self.find(pk)
        teams.add_members(actor=self.actor, team=team, text=self.read(MembersForm, request)["members"])
        return self.answer(team)

    @extend_schema(request=ImageRuleForm, responses=TeamItem)
    @action(detail=True, methods=["post"], url_path="own-images")
    def own_images(self, request: Request, pk: str) -> Response:
        """Allow or forbid images that are not in the catalogue; platform administrators only."""
        team = self.find(pk)
        imagerules.allow(actor=self.actor, team=team, **self.read(ImageRuleForm, request))
        return self.answer(team)

    @extend_schema(request=MemberForm, responses=TeamItem)
    @action(detail=True, methods=["post"], url_path="remove-member")
    def remove_member(self, request: Request, pk: str) -> Response:
        """Take somebody out of the team."""
        team = self.find(pk)
        wanted = self.read(MemberForm, request)["user"]
        chosen = [row.user for row in selectors.members(team) if wanted in {row.user.username, str(row.user_id)}]
        for user in chosen:
            teams.remove_member(actor=self.actor, team=team, user=user)
        return self.answer(team)


class UserItem(Item):
    """A person. The mail address is for administrators and the person."""

    created_at = serializers.DateTimeField(source="date_joined")
    email = serializers.SerializerMethodField()
    is_active = serializers.BooleanField()
    is_platform_admin = serializers.BooleanField()

    def get_email(self, obj: User) -> str | None:
        """Null for others."""
        actor = self.context["actor"]
        return obj.email if actor.is_admin or actor.user_id == obj.pk else None


class UserMade(UserItem):
    """A person just made; ``password`` is there when the portal made one, and only in this answer."""

    password = serializers.CharField(allow_null=True, source="made_password")


class UserForm(serializers.Serializer[Any]):
    """What a new account needs; without a password one is made."""

    username = serializers.CharField(max_length=200, trim_whitespace=False)
    email = serializers.CharField(default="", allow_blank=True, max_length=254)
    password = serializers.CharField(default="", allow_blank=True, max_length=4096, trim_whitespace=False)
    is_platform_admin = serializers.BooleanField(default=False)


class UserChange(serializers.Serializer[Any]):
    """What administrators change of an account."""

    is_platform_admin = serializers.BooleanField(required=False)
    is_active = serializers.BooleanField(required=False)


class UserViewSet(PortalViewSet):
    """People: all for administrators, one's team mates for others."""

    kind = "user"
    rows = User.objects.for_actor
    item = UserItem
    spec = selectors.USER_LIST

    @extend_schema(request=UserForm, responses={201: UserMade})
    def create(self, request: Request) -> Response:
        """Make an account."""
        user, made = people.create(actor=self.actor, id=self.new_id(request), **self.read(UserForm, request))
        return self._with_password(user, made, status.HTTP_201_CREATED)

    @extend_schema(request=UserChange, responses=UserItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the global role, or deactivate and activate."""
        user, data = self.find(pk), self.read(UserChange, request)
        if "is_platform_admin" in data:
            people.set_admin(actor=self.actor, user=user, is_platform_admin=data["is_platform_admin"])
        if "is_active" in data:
            change = people.activate if data["is_active"] else people.deactivate
            change(actor=self.actor, user=user)
        return self.answer(user)

    @extend_schema(request=None, responses=UserMade)
    @action(detail=True, methods=["post"], url_path="reset-password")
    def reset_password(self, request: Request, pk: str) -> Response:
        """Make a new password; it is in this answer and never again."""
        user = self.find(pk)
        return self._with_password(user, people.reset_password(actor=self.actor, user=user), status.HTTP_200_OK)

    def _with_password(self, user: User, made: str, code: int) -> Response:
        user.made_password = made or None  # type: ignore[attr-defined]
        headers = {"Cache-Control": "no-store"}
        return Response(UserMade(user, context=self.context()).data, status=code, headers=headers)
