"""Causes in volumes: missing, without storage, busy, full."""

from __future__ import annotations

import re

from kubekit.diagnose.model import Context, Finding, ended_container, excerpt, strip
from kubekit.diagnose.node import NO_CLAIM, UNBOUND, unscheduled_text


def volume_missing(context: Context) -> Finding | None:
    here = {claim.name for claim in context.claims if not claim.deleting}
    absent = [name for name in context.wanted_claims if name not in here]
    text = unscheduled_text(context)
    named = NO_CLAIM.search(text)
    if named is not None:
        absent = [named[1]]
    elif (note := context.said("FailedMount")) is not None and (found := NO_CLAIM.search(note.message)) is not None:
        absent, text = [found[1]], note.message
    elif not context.claims:
        # Without a single observed claim the list was not read, and its absence proves nothing.
        absent = []
    if not absent:
        return None
    return Finding(code="volume_missing", params={"claims": absent}, evidence=strip(text), next="choose_other_volume")


def volume_unbound(context: Context) -> Finding | None:
    pod = context.pod
    if pod is not None and (pod.node is not None or pod.finished):
        return None
    lost = [claim.name for claim in context.claims if claim.phase == "Lost"]
    if lost:
        return Finding(code="volume_lost", params={"claims": lost}, evidence=context.warnings(), next="ask_admin")
    note = context.said("ProvisioningFailed", "FailedBinding")
    unbound = UNBOUND.search(unscheduled_text(context))
    pending = [claim.name for claim in context.claims if claim.phase == "Pending"]
    if note is None and unbound is None:
        return None
    if context.claims and not pending:
        return None
    text = note.message if note is not None else unscheduled_text(context)
    return Finding(code="volume_not_bound", params={"claims": pending}, evidence=strip(text), next="wait_or_tell_admin")


def volume_mount(context: Context) -> Finding | None:
    main = context.pod.main if context.pod is not None else None
    if main is not None and main.state != "waiting":
        return None
    note = context.said("FailedAttachVolume", "FailedMount")
    if note is None:
        return None
    if "Multi-Attach" in note.message or "already exclusively attached" in note.message:
        return Finding(code="volume_busy", evidence=(note.message,), next="stop_other_user")
    secret = re.search(r'(secret|configmap) "([^"]+)" not found', note.message)
    if secret is not None:
        params = {"kind": secret[1], "name": secret[2]}
        return Finding(code="config_missing", params=params, evidence=(note.message,), next="start_again")
    return Finding(code="volume_mount_failed", evidence=(note.message,), next="ask_admin")


_FULL = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded|disk is full", re.IGNORECASE)
_FULL_MEMORY = re.compile(r"/dev/shm|shared memory", re.IGNORECASE)  # noqa: S108 - a text to find
#: What PyTorch says when its workers find /dev/shm full; the kernel itself only sends SIGBUS.
_NO_SHARED_MEMORY = re.compile(r"out of shared memory|insufficient shared memory", re.IGNORECASE)


def find_full(*texts: str) -> tuple[str, str] | None:
    """(``volume_full`` or ``shared_memory_full``, the line that says so), from texts a program left behind."""
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if _NO_SHARED_MEMORY.search(line):
            return "shared_memory_full", excerpt(line)
        if _FULL.search(line):
            return ("shared_memory_full" if _FULL_MEMORY.search(line) else "volume_full"), excerpt(line)
    return None


def volume_full(context: Context) -> Finding | None:
    """A program that stopped, or does not come up, because it could not write."""
    if context.pod is None or context.pod.ready:
        return None
    ended = ended_container(context)
    found = find_full(ended.message if ended is not None else "", context.log_tail, *context.warnings())
    if found is None:
        return None
    code, line = found
    return Finding(code=code, evidence=(line,), next="free_or_grow_volume" if code == "volume_full" else "bigger_size")
