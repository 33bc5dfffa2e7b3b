"""The account that Kubernetes mounts into a pod."""

import pytest

from kubekit import incluster
from kubekit.errors import CredentialError

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    return tmp_path


def test_a_renewed_token_is_seen_at_the_next_reading(folder):
    assert incluster.read(folder=folder, environ=ENVIRON).token == "first"
    (folder / "token").write_text("second")
    found = incluster.read(folder=folder, environ=ENVIRON)
    assert (found.token, found.server) == ("second", "https://10.0.0.1:443")


def test_an_address_of_the_other_family_is_bracketed(folder):
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert incluster.read(folder=folder, environ=environ).server == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", ["token", "ca.crt", "KUBERNETES_SERVICE_HOST"])
def test_outside_a_cluster_it_says_what_is_missing(folder, missing):
    environ = {name: value for name, value in ENVIRON.items() if name != missing}
    if missing not in ENVIRON:
        (folder / missing).unlink()
    with pytest.raises(CredentialError) as caught:
        incluster.read(folder=folder, environ=environ)
    assert caught.value.code == "not_in_cluster"
