"""The one-off work of a start."""

import pytest
from django.core.management.base import BaseCommand

from mlportal import env, prepare


class FailsAfterMakingTheAdministrator(BaseCommand):
    """As when the cluster cannot be registered."""

    def handle(self, *args, **options):
        self.stdout.write("made the administrator admin")
        self.stdout.write(f"{prepare.PASSWORD_LINE}s3cret-word")
        raise RuntimeError("the cluster does not answer")


def test_a_generated_password_survives_a_later_failure_and_stays_out_of_the_log(tmp_path, monkeypatch, capsys):
    environment = env.read({"PORTAL_HOME": str(tmp_path)})
    environment.home.secrets.mkdir()
    monkeypatch.setattr(
        prepare, "call_command", lambda _name, stdout: FailsAfterMakingTheAdministrator(stdout=stdout).handle()
    )
    with pytest.raises(RuntimeError):
        prepare._bootstrap(environment)
    assert environment.home.first_password.read_text() == "s3cret-word"
    assert environment.home.first_password.stat().st_mode & 0o777 == 0o600
    said = capsys.readouterr().out
    assert "made the administrator" in said
    assert "s3cret" not in said
