"""`portalctl`: the portal from a terminal and from CI. It talks to the REST API alone and knows nothing else.

`python -m portalctl login` keeps an address and a token in one file of mode 0600; `PORTAL_URL` and `PORTAL_TOKEN`
take their place in CI. Exit statuses: 0 done, 1 the run did not succeed, 2 wrong usage, 3 the portal refused,
4 the portal did not answer.
"""
