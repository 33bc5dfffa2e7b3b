"""Control loops of the embedded cluster. Each wakes on the store's events; none polls."""
