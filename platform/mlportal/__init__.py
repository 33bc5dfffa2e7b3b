"""The Django project: settings, addresses, entrances, and the processes that make up a running portal."""
