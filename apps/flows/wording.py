"""Why a run or an attempt is as it is; what the cluster says is worded in ``apps.clusters.wording``."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from apps.core.reasons import Wording

_AGAIN = _("Nothing is wrong with the program. Run it again if it was not repeated by itself.")

WORDINGS: Mapping[str, Wording] = {
    # waiting
    "attempt_waits_for_quota": Wording(
        sentence=_("The queue has no room now: {missing} missing of the {asked} asked."),
        next=_("It starts as soon as something else in the queue ends. Stop what is not needed."),
        tone="waiting",
    ),
    "pod_starting": Wording(
        sentence=_("Its pod is being started."),
        next=_("The first use of an image takes longer: it is brought to the node."),
        tone="waiting",
    ),
    "run_retries": Wording(
        sentence=_("Attempt {number} failed; attempt {next} starts at {at}."),
        next=_("The log of attempt {number} says why."),
        tone="waiting",
    ),
    "run_retries_infra": Wording(
        sentence=_("Attempt {number} was lost to the cluster ({cause}); attempt {next} starts at {at}."),
        next=_("This does not use up the flow's own retries."),
        tone="waiting",
    ),
    # catching up
    "missed": Wording(
        sentence=_("Missed while no scheduler ran: {count}, from {first} to {last}."),
        next=_("The schedule is set to skip what was missed. Run the flow by hand if you need it."),
        tone="info",
    ),
    "caught_up_latest": Wording(
        sentence=_("Started late: no scheduler ran at its time. Earlier runs left out: {count}."),
        next=_("The schedule is set to run the latest of what was missed."),
        tone="info",
    ),
    "caught_up": Wording(
        sentence=_("Started late, as one of those missed while no scheduler ran: {count}."),
        next=_("The schedule is set to run all that was missed."),
        tone="info",
    ),
    "caught_up_capped": Wording(
        sentence=_("Started late. Missed while no scheduler ran: {count}; only the latest {most} are caught up."),
        next=_("Run the flow by hand for what was left out."),
        tone="info",
    ),
    # ends by the portal
    "run_timeout": Wording(
        sentence=_("It reached its time-out of {timeout_s} s and was ended."),
        next=_("Allow more time, or make it faster."),
    ),
    "timeout_node_silent": Wording(
        sentence=_("It reached its time-out of {timeout_s} s, but its node {node} does not answer and cannot end it."),
        next=_("It may still run. An administrator of the team can give up waiting on the page of the run."),
    ),
    "given_up": Wording(
        sentence=_("Its node {node} did not answer and {who} gave up waiting, so nobody knows how it ended."),
        next=_("Look at the node before you run it again: the program may still run there."),
    ),
    "given_up_timeout": Wording(
        sentence=_(
            "It reached its time-out of {timeout_s} s; its node {node} did not answer and {who} gave up waiting."
        ),
        next=_("Look at the node before you run it again: the program may still run there."),
    ),
    "cancelled_by": Wording(sentence=_("Cancelled by {who}."), next=_("Run it again if you need it."), tone="info"),
    "cancelled": Wording(sentence=_("Cancelled."), next=_("Run it again if you need it."), tone="info"),
    "pod_refused": Wording(sentence=_("Its pod cannot be made: {why}"), next=_("Change the flow, then run it again.")),
    # ends of the program
    "exit_code": Wording(
        sentence=_("The program ended with exit code {exit_code}."),
        next=_("The end of the log says why. Mend the program, then run it again."),
    ),
    "killed_by_signal": Wording(
        sentence=_("The program was killed by the signal {signal} (exit code {exit_code})."),
        next=_("The end of the log says how far it came."),
    ),
    "preparation_failed": Wording(
        sentence=_("The preparing step {container} ended with exit code {exit_code}."),
        next=_("The events say why."),
    ),
    # ends by the cluster
    "pod_gone": Wording(
        sentence=_("Its pod vanished before its end was seen, so nobody knows how it ended."), next=_AGAIN
    ),
    "drained": Wording(sentence=_("Its node {node} was emptied for maintenance."), next=_AGAIN),
    "node_shutdown": Wording(sentence=_("Its node {node} was shut down."), next=_AGAIN),
    "node_restarted": Wording(sentence=_("Its node {node} was restarted."), next=_AGAIN),
    "disrupted": Wording(sentence=_("The cluster ended it on the node {node}."), next=_AGAIN),
    "deleted_from_outside": Wording(sentence=_("Somebody deleted its pod in the cluster."), next=_AGAIN),
    "never_started": Wording(sentence=_("It never started ({reason})."), next=_AGAIN),
    "ended_unexplained": Wording(sentence=_("It ended and the cluster does not say why ({reason})."), next=_AGAIN),
}
