"""The gateway: one process that a static route leads all hosts of instances to, and that looks each one up.

Nothing is written to a cluster when an instance starts or stops, so nothing there reloads and no web socket is cut
(failure F43). It has no authority of its own: the instance's own key decides who gets in. ``table`` reads which
instance runs and ``places`` knows it, ``way`` finds its pod, ``heads`` tells which fields go on, ``visitors`` and
``upstreams`` are the two halves of a connection, ``pages`` is what is said in place of an instance, ``serving`` is the
process.
"""
