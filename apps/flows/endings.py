"""Decisions about ends, as pure functions: what an attempt's end means, and whether another attempt follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apps.clusters.wording import reason_of
from apps.core.reasons import Reason
from apps.flows.document import Retries
from apps.flows.states import AttemptState, Charge, RunState, StopCause
from kubekit.diagnose import AttemptEnd, Finding
from kubekit.observe import AttemptObservation

INFRA_BUDGET = 3
INFRA_INTERVAL_S = 10
_STATE = {
    "succeeded": AttemptState.SUCCEEDED,
    "failed": AttemptState.FAILED,
    "timed_out": AttemptState.FAILED,
    "cancelled": AttemptState.CANCELLED,
    "lost": AttemptState.LOST,
}
TIMEOUT_CODES = frozenset({"run_timeout", "deadline_exceeded", "given_up_timeout"})


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How an attempt ended: its last state, why, and which budget a repetition would be taken from."""

    state: AttemptState
    charge: Charge = Charge.NONE
    code: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    exit_code: int | None = None
    finished_at: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """For the attempt's ``ending`` column."""
        return {
            "state": self.state.value,
            "charge": self.charge.value,
            "code": self.code,
            "params": self.params,
            "evidence": list(self.evidence),
            "exit_code": self.exit_code,
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ending:
        """The reverse of ``as_json``."""
        moment = data["finished_at"]
        return cls(
            state=AttemptState(data["state"]),
            charge=Charge(data["charge"]),
            code=data["code"],
            params=data["params"],
            evidence=tuple(data["evidence"]),
            exit_code=data["exit_code"],
            finished_at=datetime.fromisoformat(moment) if moment else None,
        )

    @property
    def reason(self) -> Reason | None:
        """For the state's banner; a success needs none."""
        return Reason(code=self.code, params=self.params, evidence=self.evidence) if self.code else None


def from_end(end: AttemptEnd, observation: AttemptObservation | None, *, evidence: tuple[str, ...] = ()) -> Ending:
    """kubekit's classification in the portal's words."""
    reason = reason_of(Finding(code=end.code, params=end.params, evidence=evidence))
    succeeded = end.outcome == "succeeded"
    return Ending(
        state=_STATE[end.outcome],
        charge=Charge(end.retry_class),
        code="" if succeeded else reason.code,
        params={} if succeeded else dict(reason.params),
        evidence=() if succeeded else tuple(reason.evidence),
        exit_code=observation.exit_code if observation is not None else None,
        finished_at=observation.finished_at if observation is not None else None,
    )


def stopped(cause: str, *, timeout_s: int, who: str = "", exit_code: int | None = None) -> Ending:
    """The end of an attempt that the portal itself ended, once its pod is gone."""
    if cause == StopCause.TIMEOUT:
        return Ending(
            state=AttemptState.FAILED,
            charge=Charge.USER,
            code="run_timeout",
            params={"timeout_s": timeout_s},
            exit_code=exit_code,
        )
    return Ending(state=AttemptState.CANCELLED, code="cancelled_by", params={"who": who or "?"}, exit_code=exit_code)


def given_up(cause: str, *, charge: str, timeout_s: int, node: str, who: str) -> Ending:
    """The end of an attempt that nobody waits for any longer: its node is silent, so its real end is not known.

    One that had timed out stays a time-out: it uses up a retry, and its alarm is the one that has been sent already.
    """
    params = {"node": node or "?", "who": who}
    if cause == StopCause.TIMEOUT:
        return Ending(
            state=AttemptState.LOST,
            charge=Charge.USER,
            code="given_up_timeout",
            params={**params, "timeout_s": timeout_s},
        )
    if cause == StopCause.CANCEL:
        return Ending(state=AttemptState.LOST, code="given_up", params=params)
    return Ending(state=AttemptState.LOST, charge=Charge(charge or Charge.INFRA), code="given_up", params=params)


@dataclass(frozen=True, kw_only=True)
class Again:
    """Another attempt, not before ``not_before``."""

    number: int
    not_before: datetime


def next_attempt(
    *, ending: Ending, number: int, charges: Iterable[str], retries: Retries, cancelling: bool, now: datetime
) -> Again | None:
    """Whether attempt ``number`` is followed by another. ``charges`` are those of all ended attempts, this included.

    The program's own failures (a time-out is one) use up ``retries``; what was done to it (eviction, a lost node, a
    pod that never started) has a budget of its own and never burns the user's.
    """
    if cancelling or ending.state == AttemptState.SUCCEEDED or ending.charge == Charge.NONE:
        return None
    used = sum(1 for charge in charges if charge == ending.charge)
    budget = retries.count if ending.charge == Charge.USER else INFRA_BUDGET
    if used > budget:
        return None
    wait_s = retries.interval_s if ending.charge == Charge.USER else INFRA_INTERVAL_S * used
    return Again(number=number + 1, not_before=now + timedelta(seconds=wait_s))


def run_state(ending: Ending, *, cancelling: bool) -> RunState:
    """The run's last state after its last attempt. A program that finished before the cancel reached it succeeded."""
    if ending.state == AttemptState.SUCCEEDED:
        return RunState.SUCCEEDED
    if cancelling or ending.state == AttemptState.CANCELLED:
        return RunState.CANCELLED
    return RunState.FAILED
