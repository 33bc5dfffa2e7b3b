"""Public keys for SSH: what is taken, what is refused with which words, who sees them."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from django.test import Client

from apps.core.errors import Conflict, Forbidden, Invalid, PortalError
from apps.core.models import AuditEntry
from apps.tenants import sshkeys, tokens
from apps.tenants.models import SshKey, User
from tests.tenants import make

pytestmark = pytest.mark.django_db


def line(key: object = None, comment: str = "") -> str:
    """The line of a ``.pub`` file."""
    made = key or ed25519.Ed25519PrivateKey.generate()
    text = made.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode()  # type: ignore[attr-defined]
    return f"{text} {comment}".strip()


SECURITY_KEY = (
    "sk-ssh-ed25519@openssh.com "
    "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIIeEhA0Q9pIPvNIbyz5ljFKxVuiDLUGqyvf7AqO2y0sIAAAABHNzaDo="
)


@pytest.mark.parametrize(
    "given",
    [
        line(),
        line(ec.generate_private_key(ec.SECP256R1())),
        line(ec.generate_private_key(ec.SECP521R1())),
        line(rsa.generate_private_key(65537, 2048)),
        SECURITY_KEY,
        f"  {line(comment='me at home')}\n",
    ],
    ids=["ed25519", "p256", "p521", "rsa", "security key", "with spaces around"],
)
def test_a_good_key_is_taken(given: str) -> None:
    found = sshkeys.parse(given)
    assert found.text == " ".join(given.split()[:2])
    assert found.fingerprint.startswith("SHA256:")


def test_the_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path: Path) -> None:
    given = line(comment="me@laptop")
    (tmp_path / "key.pub").write_text(given + "\n")
    shown = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "key.pub")], capture_output=True, text=True, check=True)
    assert sshkeys.parse(given).fingerprint == shown.stdout.split()[1]


def private() -> str:
    pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
        form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()
    )
    return pem.decode()


def old_kind() -> str:
    blob = base64.b64encode(b"\0\0\0\x07ssh-dss").decode()
    return f"ssh-dss {blob} me@laptop"


BAD = {
    "key_empty": lambda: " \n",
    "key_too_long": lambda: "ssh-ed25519 " + "A" * 20_000,
    "key_private": private,
    "key_several_lines": lambda: f"{line()}\n{line()}",
    "key_options": lambda: f'command="/bin/true",no-pty {line()}',
    "key_kind": old_kind,
    "key_too_weak": lambda: line(rsa.generate_private_key(65537, 1024)),
    "key_unreadable": lambda: line()[:-9],
}


@pytest.mark.parametrize("code", BAD)
def test_a_bad_key_is_refused_with_its_own_code_and_what_to_do(code: str) -> None:
    person = make.user()
    with pytest.raises(Invalid) as refusal:
        sshkeys.add(actor=make.actor(person), key=BAD[code](), name="laptop")
    assert refusal.value.code == code
    assert refusal.value.next
    assert refusal.value.errors["key"] == refusal.value.detail
    assert not SshKey.objects.as_system().exists()


@pytest.mark.parametrize(
    "given",
    ["ssh-ed25519", "ssh-ed25519 AAAA", "ssh-ed25519 §§§", "hello", "no-pty", "ssh-ed25519-cert-v01@openssh.com AAAA"],
)
def test_what_is_no_key_never_raises_anything_else(given: str) -> None:
    with pytest.raises(Invalid):
        sshkeys.parse(given)


def test_a_private_key_is_not_repeated_anywhere() -> None:
    text = private()
    with pytest.raises(Invalid) as refusal:
        sshkeys.add(actor=make.actor(make.user()), key=text)
    secret = text.splitlines()[3]
    assert secret not in repr(refusal.value.as_problem())
    assert not AuditEntry.objects.as_system().filter(verb__startswith="ssh-key").exists()


def test_a_key_is_kept_audited_and_announced_once_for_a_double_click() -> None:
    person = make.user()
    told: list[object] = []
    sshkeys.on_change(told.append)
    try:
        given = line(comment="me@laptop")
        first = sshkeys.add(actor=make.actor(person), id=SshKey().pk, key=given)
        again = sshkeys.add(actor=make.actor(person), id=first.pk, key=given)
        assert (first.pk, first.name) == (again.pk, "me-laptop")
        assert told == [person.pk]
        sshkeys.delete(actor=make.actor(person), key=first)
        assert told == [person.pk, person.pk]
    finally:
        sshkeys._on_change.remove(told.append)
    verbs = list(AuditEntry.objects.as_system().order_by("pk").values_list("verb", "detail__fingerprint"))
    assert verbs == [("ssh-key.add", first.fingerprint), ("ssh-key.delete", first.fingerprint)]


def test_the_same_key_twice_is_refused_and_named_and_another_person_may_have_it_too() -> None:
    person, given = make.user(), line()
    sshkeys.add(actor=make.actor(person), key=given, name="laptop")
    with pytest.raises(Conflict) as refusal:
        sshkeys.add(actor=make.actor(person), key=f"{given} other-comment", name="desktop")
    assert (refusal.value.code, "laptop" in str(refusal.value.detail)) == ("key_known", True)
    other = make.user()
    sshkeys.add(actor=make.actor(other), key=given)
    fingerprint = sshkeys.parse(given).fingerprint
    for who in (person, other):
        found = sshkeys.find(username=who.username, fingerprint=fingerprint)
        assert found is not None and found.user == who


def test_whose_account_is_closed_is_found_by_no_key() -> None:
    person = make.user()
    key = sshkeys.add(actor=make.actor(person), key=line())
    assert sshkeys.still_good([key.pk]) == {key.pk}
    User.objects.as_system().filter(pk=person.pk).update(is_active=False)
    assert sshkeys.find(username=person.username, fingerprint=key.fingerprint) is None
    assert sshkeys.still_good([key.pk]) == set()
    assert sshkeys.find(username="../" + person.username, fingerprint=key.fingerprint) is None


def test_a_token_with_scopes_adds_no_key_and_there_is_an_end_to_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.core import actors

    person = make.user()
    token, _text = tokens.create(actor=make.actor(person), name="ci", scopes=["ssh-key:create"])
    with pytest.raises(Forbidden):
        sshkeys.add(actor=actors.from_user(person, token=token), key=line())
    monkeypatch.setattr(sshkeys, "MOST_KEYS", 1)
    sshkeys.add(actor=make.actor(person), key=line())
    with pytest.raises(PortalError) as refusal:
        sshkeys.add(actor=make.actor(person), key=line())
    assert refusal.value.code == "key_limit"


# --- pages and REST ----------------------------------------------------------------------------------------------


def test_on_the_page_a_key_is_added_seen_and_deleted_and_a_refusal_stands_beside_the_field() -> None:
    person, browser = make.user(), Client()
    browser.force_login(person)
    assert "You have no key here" in browser.get("/account/ssh-keys").content.decode()
    refused = browser.post("/account/ssh-keys", {"key": old_kind(), "name": ""})
    assert refused.status_code == 422
    assert "ssh-keygen -t ed25519" in refused.content.decode()
    assert browser.post("/account/ssh-keys", {"key": line(comment="me@laptop"), "name": ""}).status_code == 302
    key = SshKey.objects.as_system().get()
    shown = browser.get("/account/ssh-keys").content.decode()
    assert key.fingerprint in shown and "me-laptop" in shown
    browser.post(f"/account/ssh-keys/{key.pk}/delete")
    assert not SshKey.objects.as_system().exists()


def test_rest_lists_ones_own_keys_alone_adds_and_deletes() -> None:
    def api(person: User) -> Client:
        _row, text = tokens.create(actor=make.actor(person), name="t")
        return Client(headers={"Authorization": f"Bearer {text}"})

    person = make.user()
    mine, others = api(person), api(make.user())
    body = {"key": line(comment="me@laptop")}
    once = {"Idempotency-Key": "a"}
    made = mine.post("/api/v1/ssh-keys", body, content_type="application/json", headers=once)
    again = mine.post("/api/v1/ssh-keys", body, content_type="application/json", headers=once)
    assert (made.status_code, again.status_code) == (201, 201)
    assert made.json()["id"] == again.json()["id"]
    assert made.json()["fingerprint"] == sshkeys.parse(body["key"]).fingerprint
    taken = mine.post("/api/v1/ssh-keys", body, content_type="application/json")
    assert (taken.status_code, taken.json()["code"]) == (409, "key_known")
    bad = mine.post("/api/v1/ssh-keys", {"key": "x" * 20_000}, content_type="application/json")
    assert (bad.status_code, bad.json()["code"]) == (422, "key_too_long")
    assert [row["name"] for row in mine.get("/api/v1/ssh-keys").json()["items"]] == ["me-laptop"]
    assert others.get("/api/v1/ssh-keys").json()["items"] == []
    address = f"/api/v1/ssh-keys/{made.json()['id']}"
    assert others.delete(address).status_code == 404
    assert mine.delete(address).status_code == 204
    assert not SshKey.objects.as_system().exists()


def test_a_dsa_key_of_any_size_is_refused() -> None:
    key = dsa.generate_private_key(1024).public_key()
    with pytest.warns(Warning, match="DSA"):
        text = key.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode()
    with pytest.raises(Invalid) as refusal:
        sshkeys.parse(text)
    assert refusal.value.code == "key_kind"
