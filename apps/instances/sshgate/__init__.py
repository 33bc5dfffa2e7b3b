"""The entrance by SSH: one process that knows people by their public keys and leads them to their instances.

It speaks SSH with the person only to know who it is; the connection to the instance goes through it end to end, so it
never sees what is said there. ``doors`` asks the database, ``way`` finds the pod, ``limits`` counts, ``server`` speaks.
"""
