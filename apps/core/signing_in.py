"""Sign-in, sign-out and the change of one's password.

Whether a name and password fit is asked of the checker that the app with the users registers: it counts
failures and answers alike for names that exist and names that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth import views as auth_views
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from apps.core import audit
from apps.core.errors import PortalError
from apps.core.pages import GATE_SECTION, PortalPage
from apps.core.preferences import put_language

Checker = Callable[..., Any]
_checkers: list[Checker] = []


def register(checker: Checker) -> None:
    """``checker(request=, username=, password=, address=)`` gives the user or None, or raises ``PortalError``."""
    _checkers[:] = [checker]


class SignInForm(AuthenticationForm):
    """Name and password; one sentence for whatever does not fit."""

    error_messages = {"invalid_login": _("Name and password do not fit. Both are case-sensitive."), "inactive": ""}
    blocked: PortalError | None = None

    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not username or not password:
            return self.cleaned_data
        address = self.request.META.get("REMOTE_ADDR") if self.request is not None else None
        try:
            self.user_cache = _checkers[0](
                request=self.request, username=username, password=password, address=address or None
            )
        except PortalError as error:
            self.blocked = error
            raise ValidationError(f"{error.detail} {error.next}".strip(), code=error.code) from error
        if self.user_cache is None:
            raise self.get_invalid_login_error()
        return self.cleaned_data


class SignIn(auth_views.LoginView):
    """The one page that needs no session."""

    template_name = "registration/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True
    next_page = "core:home"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """For a fragment of a page whose session ended: reload the page, which then leads here as a whole."""
        if request.headers.get("HX-Request"):
            return HttpResponse(status=204, headers={"HX-Refresh": "true"})
        return super().get(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        blocked: PortalError | None = form.blocked
        return self.render_to_response(self.get_context_data(form=form), status=blocked.status if blocked else 422)

    def form_valid(self, form: Any) -> HttpResponse:
        user = form.get_user()
        login(self.request, user)
        target = reverse("core:password") if user.must_change_password else self.get_success_url()
        response = HttpResponseRedirect(target)
        if user.language:
            put_language(response, user.language)
        return response


class SignOut(auth_views.LogoutView):
    """By POST alone, so that no picture on another site signs anybody out."""

    next_page = "core:sign-in"


class ChangePassword(PortalPage):
    """Also where a person lands whose first password was given by somebody else."""

    section = GATE_SECTION
    title = _("Change password")
    submit_label = _("Change password")

    @property
    def person(self) -> Any:
        """Who is signed in; ``PortalPage`` lets nobody else in."""
        return self.request.user

    def get(self, request: HttpRequest) -> HttpResponse:
        """The empty form."""
        return self._show(PasswordChangeForm(self.person))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Other sessions of this person end with the old password; this one goes on."""
        form = PasswordChangeForm(self.person, request.POST)
        if not form.is_valid():
            return self._show(form, status=422)
        with transaction.atomic():
            user: Any = form.save(commit=False)
            user.must_change_password = False
            user.save(update_fields=["password", "must_change_password"])
            audit.record(actor=self.actor, verb="user.password", obj=user)
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        messages.success(request, str(_("The password is changed.")))
        return HttpResponseRedirect(reverse("core:home"))

    def _show(self, form: forms.Form, status: int = 200) -> HttpResponse:
        context = {"form": form, "must": self.person.must_change_password}
        return self.show("registration/password.html", context, status=status)
