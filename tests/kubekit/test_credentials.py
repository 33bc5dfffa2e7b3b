"""A kubeconfig is data: what could act, or weakens the connection, is refused with a code and what to do instead."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubekit.credentials import Credentials, expiry, parse_kubeconfig
from kubekit.errors import CredentialError
from tests.kubekit.certificates import authority

CA = authority()
CERT, KEY = CA.issue("portal")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, context: dict[str, Any] | None = None
) -> str:
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "preferences": {},
        "clusters": [
            {
                "name": "k",
                "cluster": {"server": "https://10.0.0.1:6443/", "certificate-authority-data": b64(CA.certificate)},
            }
        ],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    found["clusters"][0]["cluster"].update(cluster or {})
    if user is not None:
        found["users"][0]["user"] = user
    found["contexts"][0]["context"].update(context or {})
    return yaml.safe_dump(found)


def refused(text: str | bytes, **kwargs: Any) -> str:
    with pytest.raises(CredentialError) as caught:
        parse_kubeconfig(text, **kwargs)
    assert len(caught.value.message) > 15
    return caught.value.code


def test_a_token_is_taken() -> None:
    found = parse_kubeconfig(config(context={"namespace": "team"}))
    assert found == Credentials(server="https://10.0.0.1:6443", ca_data=CA.certificate, token="t0ken", namespace="team")
    assert found.headers() == {"Authorization": "Bearer t0ken"}


def test_a_client_certificate_is_taken() -> None:
    found = parse_kubeconfig(config(user={"client-certificate-data": b64(CERT), "client-key-data": b64(KEY)}))
    assert (found.client_cert, found.client_key, found.token) == (CERT, KEY, None)
    assert found.headers() == {}


def test_json_is_yaml() -> None:
    assert parse_kubeconfig(json.dumps(yaml.safe_load(config()))).token == "t0ken"


def test_nothing_secret_is_shown() -> None:
    found = Credentials(server="https://h", client_cert=CERT, client_key=KEY, token="t0ken")
    assert "t0ken" not in repr(found)
    assert "PRIVATE" not in repr(found)


def test_a_named_context_is_followed() -> None:
    document = yaml.safe_load(config())
    document["users"].append({"name": "v", "user": {"token": "other"}})
    document["contexts"].append({"name": "d", "context": {"cluster": "k", "user": "v"}})
    assert parse_kubeconfig(yaml.safe_dump(document), context="d").token == "other"
    assert refused(yaml.safe_dump(document), context="nowhere") == "missing_entry"


@pytest.mark.parametrize(
    ("user", "code"),
    [
        ({"exec": {"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}}, "exec"),
        ({"token": "t", "exec": {"command": "sh"}}, "exec"),
        ({"auth-provider": {"name": "oidc"}}, "auth_provider"),
        ({"tokenFile": "/etc/passwd"}, "token_file"),
        ({"client-certificate": "/etc/passwd", "client-key-data": b64(KEY)}, "certificate_file"),
        ({"client-certificate-data": b64(CERT), "client-key": "/etc/shadow"}, "key_file"),
        ({"username": "admin", "password": "x"}, "password"),
        ({"token": "t", "as": "root"}, "impersonation"),
        ({"token": "t", "as-groups": ["system:masters"]}, "impersonation"),
        ({"token": "t", "as-user-extra": {"a": ["b"]}}, "impersonation"),
        ({"token": "t", "as-uid": "0"}, "impersonation"),
        ({"token": "t", "brand-new-setting": 1}, "unknown_setting"),
        ({}, "no_login"),
        ({"client-certificate-data": b64(CERT)}, "half_certificate"),
        ({"client-key-data": b64(KEY)}, "half_certificate"),
        ({"client-certificate-data": b64(CERT), "client-key-data": b64(CA.issue("other")[1])}, "bad_certificate"),
        ({"client-certificate-data": b64("x"), "client-key-data": b64("y")}, "bad_certificate"),
        ({"client-certificate-data": "%%%", "client-key-data": b64(KEY)}, "bad_base64"),
        ({"token": "a\nInjected: header"}, "bad_token"),
        ({"token": "schlüssel"}, "bad_token"),
        ({"token": ["list"]}, "not_kubeconfig"),
    ],
)
def test_users_that_are_refused(user: dict[str, Any], code: str) -> None:
    assert refused(config(user=user)) == code


@pytest.mark.parametrize(
    ("cluster", "code"),
    [
        ({"insecure-skip-tls-verify": True}, "insecure_tls"),
        ({"proxy-url": "http://evil:3128"}, "proxy"),
        ({"certificate-authority": "/etc/passwd"}, "ca_file"),
        ({"certificate-authority-data": b64("no certificate")}, "bad_ca"),
        ({"certificate-authority-data": "***"}, "bad_base64"),
        ({"server": "http://10.0.0.1:8080"}, "plain_http"),
        ({"server": "http://localhost.evil.example"}, "plain_http"),
        ({"server": "http://127.0.0.1.evil.example"}, "plain_http"),
        ({"server": "file:///etc/passwd"}, "bad_server"),
        ({"server": "unix:///run/x.sock"}, "bad_server"),
        ({"server": "https://user:pass@host"}, "bad_server"),
        ({"server": "https://host?x=1"}, "bad_server"),
        ({"server": "https://host:99999"}, "bad_server"),
        ({"server": ""}, "bad_server"),
        ({"server": "https://"}, "bad_server"),
        ({"brand-new-setting": "x"}, "unknown_setting"),
    ],
)
def test_clusters_that_are_refused(cluster: dict[str, Any], code: str) -> None:
    assert refused(config(cluster=cluster)) == code


def test_settings_that_say_nothing_are_let_through() -> None:
    assert parse_kubeconfig(config(cluster={"insecure-skip-tls-verify": False, "proxy-url": ""})).secure


def test_an_encrypted_key_is_refused_without_asking_anybody() -> None:
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(KEY.encode(), None)
    locked = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    ).decode()
    user = {"client-certificate-data": b64(CERT), "client-key-data": b64(locked)}
    assert refused(config(user=user)) == "bad_certificate"


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:6443", "http://localhost:1", "http://[::1]:6443", "http://127.9.9.9"]
)
def test_plain_http_is_for_loopback(server: str) -> None:
    assert not parse_kubeconfig(config(cluster={"server": server, "certificate-authority-data": ""})).secure


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not_kubeconfig"),
        ("just words", "not_kubeconfig"),
        ("- a\n- b", "not_kubeconfig"),
        ("kind: Secret\nclusters: []", "not_kubeconfig"),
        ("kind: Config\nclusters: []", "no_context"),
        ("kind: Config\nclusters: []\ncurrent-context: c", "missing_entry"),
        ("kind: Config\nclusters: 5\ncurrent-context: c\ncontexts: 7", "missing_entry"),
        ("a: [", "not_yaml"),
        ("a: !!python/object/apply:os.system ['true']", "not_yaml"),
        ("\x00", "not_yaml"),
        (b"\xff\xfe\x00\xd8", "not_yaml"),
        ("[" * 20_000, "not_yaml"),
        ("a: 0000-00-00", "not_yaml"),
    ],
)
def test_texts_that_are_no_kubeconfig(text: str | bytes, code: str) -> None:
    assert refused(text) == code


def test_a_text_over_one_mebibyte_is_not_even_parsed() -> None:
    began = time.process_time()
    assert refused("a" * ((1 << 20) + 1)) == "too_large"
    assert time.process_time() - began < 0.5


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    began = time.process_time()
    assert refused("\n".join(lines)) == "not_yaml"
    assert time.process_time() - began < 1


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_input_gives_credentials_or_a_refusal(text: str | bytes) -> None:
    with pytest.raises(CredentialError):
        parse_kubeconfig(text)


# --- what has ended ----------------------------------------------------------------------------------------------


def jwt(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize(("days_ago", "code"), [(1, "expired"), (-1, "not_yet_valid")])
def test_a_client_certificate_is_refused_before_and_after_its_time(days_ago: float, code: str) -> None:
    cert, key = CA.issue("portal", days_ago=days_ago)
    user = {"client-certificate-data": b64(cert), "client-key-data": b64(key)}
    with pytest.raises(CredentialError, match=r"client certificate (ended on|is valid only from) \d{4}-") as caught:
        parse_kubeconfig(config(user=user))
    assert caught.value.code == code


def test_a_token_that_has_ended_is_refused_and_one_that_has_not_says_when() -> None:
    now = int(time.time())
    with pytest.raises(CredentialError, match="the token ended on") as caught:
        parse_kubeconfig(config(user={"token": jwt(exp=now - 60)}))
    assert caught.value.code == "expired"
    found = parse_kubeconfig(config(user={"token": jwt(exp=now + 3600)}))
    ends = expiry(found)
    assert ends is not None and int(ends.timestamp()) == now + 3600


@pytest.mark.parametrize(
    "token", ["t0ken", "a.b.c", "e30.e30.c2ln", jwt(exp="soon"), jwt(exp=1e30), jwt(exp=-1), "e30.W10.c2ln"]
)
def test_a_token_that_does_not_say_when_it_ends_is_taken(token: str) -> None:
    assert expiry(parse_kubeconfig(config(user={"token": token}))) is None


def test_a_certificate_says_when_it_ends() -> None:
    ends = expiry(Credentials(server="https://h", client_cert=CERT, client_key=KEY))
    assert ends is not None and 0 < ends.timestamp() - time.time() <= 3600
