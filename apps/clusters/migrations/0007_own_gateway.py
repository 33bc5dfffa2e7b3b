from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0006_gateway"),
    ]

    operations = [
        migrations.AlterField(
            model_name="cluster",
            name="exposure",
            field=models.CharField(
                choices=[
                    ("ingress", "Ingress"),
                    ("httproute", "HTTPRoute (Gateway API)"),
                    ("gateway", "the portal's own gateway"),
                ],
                default="ingress",
                max_length=20,
                verbose_name="exposure",
            ),
        ),
    ]
