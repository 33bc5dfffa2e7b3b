"""Why is it not running? Observations, events and what the portal knows -> findings. Pure.

Each rule looks at one cause and answers with a `Finding` or nothing; `rules.RULES` orders them from what is certain and
overrides all else (the cluster is away) to what is vague (it takes too long). A finding's ``code`` and ``next`` are
stable words that the portal translates; ``params`` fill the sentence; ``evidence`` is the cluster's own text.
"""

from __future__ import annotations

from kubekit.diagnose.codes import END_CODES, FINDING_CODES, MAY_PASS, NEXT_CODES
from kubekit.diagnose.endings import (
    POD_GONE,
    AttemptEnd,
    Outcome,
    RetryClass,
    classify_attempt_end,
    classify_no_start,
    pod_is_ours,
)
from kubekit.diagnose.model import Context, Finding
from kubekit.diagnose.rules import RULES, diagnose, findings

__all__ = [
    "END_CODES",
    "FINDING_CODES",
    "MAY_PASS",
    "NEXT_CODES",
    "POD_GONE",
    "RULES",
    "AttemptEnd",
    "Context",
    "Finding",
    "Outcome",
    "RetryClass",
    "classify_attempt_end",
    "classify_no_start",
    "diagnose",
    "findings",
    "pod_is_ours",
]
