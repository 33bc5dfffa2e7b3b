"""The audit log only grows: the database itself refuses to change or remove an entry."""

from django.db import migrations

FORBID = """
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit entries are append-only';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON core_auditentry
    FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
"""
ALLOW = """
DROP TRIGGER audit_append_only ON core_auditentry;
DROP FUNCTION audit_is_append_only();
"""


class Migration(migrations.Migration):
    """See the module's docstring."""

    dependencies = [("core", "0002_initial")]

    operations = [migrations.RunSQL(FORBID, ALLOW)]
