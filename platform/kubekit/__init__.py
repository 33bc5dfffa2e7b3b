"""All that the portal knows about Kubernetes; no Django, no apps, usable from any program.

How the parts fit together::

    row --> specs.InstanceSpec ... --> build.* (pure) --> dict --> client.Cluster.apply/create
    cluster --> listwatch.ListWatch / client.Cluster.get --> raw dict --> observe.* (pure) --> Observation
    Observation + events + context --> diagnose.diagnose (pure) --> Finding   (why is it not running?)
    AttemptObservation --> diagnose.classify_attempt_end (pure) --> AttemptEnd (how did the task end?)

=================  ====================================================================================
``names``          names, labels and selectors as pure functions of a row's id and typed name
``quantities``     "500m", "2Gi" <-> millicores and bytes
``specs``          frozen, validated inputs of the builders
``build``          spec -> manifest (instance, claim, task, queue, and what a check tries out)
``checkup``        what a cluster has and lacks: verdicts on what was read and tried
``credentials``    a kubeconfig's text -> `Credentials`; everything that could act is refused
``kinds``          kind -> API path
``permissions``    what the account must be allowed, the one list; `rules` of a ClusterRole
``client``         `Cluster`: synchronous REST, thread-safe, dicts in and out
``pinned``         connections to checked addresses alone, for `client`
``streams``        asynchronous watch, log, exec, port-forward
``tunnel``         the two ends of an exec or port-forward WebSocket
``listwatch``      list, then watch, then list again; never gives up
``observe``        raw objects and events -> frozen observations
``events``         events in plain words; stages of a start
``diagnose``       observations -> findings with evidence and next step; how an attempt ended
``errors``         `SpecError`, `CredentialError` and the `KubeError` family
=================  ====================================================================================

Nothing is imported here, so that ``import kubekit.names`` stays cheap.
"""
