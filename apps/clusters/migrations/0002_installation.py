"""The installation's own id, and where a cluster's ingress controller lives."""

from django.db import migrations, models

import apps.clusters.models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("install", models.CharField(max_length=20)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("pk", 1)), name="installation_one_row")],
            },
        ),
        migrations.AddField(
            model_name="cluster",
            name="ingress_namespaces",
            field=models.JSONField(
                default=apps.clusters.models.ingress_namespaces, verbose_name="namespaces of the ingress controller"
            ),
        ),
    ]
