"""Pure builders: a specification in, a manifest (plain dict, ready for `Cluster.apply`) out.

No builder talks to anything, reads a clock or picks a random value: the same specification gives the same manifest, and
the golden files under ``tests/kubekit/golden`` are their specification. Each role has one file: ``instance``,
``task``, ``claim``, ``queue``; ``pod`` holds what every pod of the portal has in common.
"""
