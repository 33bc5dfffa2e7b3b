from django.db import migrations

import apps.core.secret


class Migration(migrations.Migration):
    dependencies = [
        ("instances", "0002_object_uids"),
    ]

    operations = [
        migrations.AddField(
            model_name="instance",
            name="next_key",
            field=apps.core.secret.SecretField(blank=True, default="", editable=False),
        ),
    ]
