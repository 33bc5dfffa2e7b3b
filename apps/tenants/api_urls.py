"""REST routes of people, teams, queues, tokens and keys."""

from rest_framework.routers import SimpleRouter

from apps.tenants.api import QueueViewSet, TeamViewSet, UserViewSet
from apps.tenants.api_ssh import SshKeyViewSet
from apps.tenants.api_tokens import TokenViewSet

router = SimpleRouter(trailing_slash=False)
router.register("tokens", TokenViewSet, basename="token")
router.register("ssh-keys", SshKeyViewSet, basename="ssh-key")
router.register("users", UserViewSet, basename="user")
router.register("teams", TeamViewSet, basename="team")
router.register("queues", QueueViewSet, basename="queue")

urlpatterns = router.urls
