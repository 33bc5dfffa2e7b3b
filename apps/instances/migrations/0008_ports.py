"""Open ports and their guests. The database itself tells the gateway of each change of a launch and of its ports:
whoever writes the row cannot forget it."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

TELL = """
CREATE FUNCTION instance_is_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('mlportal_instances', NEW.id::text);
    RETURN NULL;
END $$;
CREATE TRIGGER instance_told AFTER UPDATE ON instances_instance FOR EACH ROW
    WHEN ((OLD.state, OLD.launch, OLD.pod_uid) IS DISTINCT FROM (NEW.state, NEW.launch, NEW.pod_uid))
    EXECUTE FUNCTION instance_is_told();
CREATE TRIGGER instance_told_first AFTER INSERT ON instances_instance FOR EACH ROW
    EXECUTE FUNCTION instance_is_told();
CREATE FUNCTION ports_are_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('mlportal_instances', '');
    RETURN NULL;
END $$;
CREATE TRIGGER ports_told AFTER INSERT OR UPDATE OR DELETE ON instances_openport
    FOR EACH STATEMENT EXECUTE FUNCTION ports_are_told();
CREATE TRIGGER guests_told AFTER INSERT OR UPDATE OR DELETE ON instances_portguest
    FOR EACH STATEMENT EXECUTE FUNCTION ports_are_told();
"""
KEEP_SILENT = """
DROP TRIGGER guests_told ON instances_portguest;
DROP TRIGGER ports_told ON instances_openport;
DROP FUNCTION ports_are_told();
DROP TRIGGER instance_told_first ON instances_instance;
DROP TRIGGER instance_told ON instances_instance;
DROP FUNCTION instance_is_told();
"""


class Migration(migrations.Migration):
    """See the module's docstring."""

    dependencies = [
        ("instances", "0007_lifetime"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OpenPort",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="port")),
                ("label", models.CharField(blank=True, default="", max_length=40, verbose_name="what it is")),
                (
                    "instance",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="open_ports",
                        to="instances.instance",
                    ),
                ),
            ],
            options={"ordering": ["number"]},
        ),
        migrations.CreateModel(
            name="PortGuest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField()),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "port",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="guests", to="instances.openport"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="openport",
            constraint=models.UniqueConstraint(fields=("instance", "number"), name="instance_port_once"),
        ),
        migrations.AddConstraint(
            model_name="portguest",
            constraint=models.UniqueConstraint(fields=("port", "person"), name="port_guest_once"),
        ),
        migrations.RunSQL(TELL, KEEP_SILENT),
    ]
