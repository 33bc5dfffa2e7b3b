"""How much there is in a filled installation."""

TENANTS, INSTANCES, FLOWS = 1_000, 5_000, 10_000
