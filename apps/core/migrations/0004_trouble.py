import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("core", "0003_audit_append_only")]

    operations = [
        migrations.CreateModel(
            name="Pulse",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("asked_at", models.DateTimeField()),
                ("answered_at", models.DateTimeField(null=True)),
                ("told", models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            name="Trouble",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True, verbose_name="created")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
                ("code", models.CharField(max_length=60)),
                ("subject", models.CharField(max_length=200)),
                ("params", models.JSONField(default=dict)),
                ("evidence", models.JSONField(default=list)),
                ("since", models.DateTimeField(verbose_name="since")),
                ("seen_at", models.DateTimeField()),
                ("told_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "trouble",
                "verbose_name_plural": "troubles",
                "constraints": [models.UniqueConstraint(fields=("code", "subject"), name="trouble_once")],
            },
        ),
    ]
