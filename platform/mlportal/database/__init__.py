"""The database backend of the portal (ENGINE)."""
