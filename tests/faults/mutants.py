"""``make mutants``: takes each protection away by one line, in a copy of the tree; its test must fail then.

``python -m tests.faults.mutants [F7 ...]`` runs all, or those of some failures. A mutant whose test passes means that
nothing guards the protection; a line that is no longer there means that this list is behind the code.
"""

# ruff: noqa: E501 - a mutant is a line of code beside the line that replaces it
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("apps", "platform", "tests", "templates", "static", "docker", "manage.py", "pyproject.toml")


@dataclass(frozen=True)
class Mutant:
    """One protection: where it stands, what stands there instead, and the test that must notice."""

    number: str
    file: str
    before: str
    after: str
    test: str

    def apply(self, tree: Path) -> None:
        """Change the copy."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        assert text.count(self.before) == 1, (
            f"{self.number}: {self.file} has {text.count(self.before)}x {self.before!r}"
        )
        path.write_text(text.replace(self.before, self.after), encoding="utf-8")


RECONCILE, FINISHING = "apps/flows/reconcile.py", "apps/flows/finishing.py"
STREAMS, LISTWATCH, CLIENT = (f"platform/kubekit/{name}.py" for name in ("streams", "listwatch", "client"))
WRITING, WATCHING, QUEUEING, QUOTA = (
    f"tests/faults/test_{name}.py" for name in ("writing", "watching", "queueing", "quota")
)

MUTANTS = (
    Mutant("F1", STREAMS, "sock_read=read_timeout_s", "sock_read=None", f"{WATCHING}::test_f01_a_half_open_watch"),
    Mutant("F48", "apps/instances/lifetime/judging.py", "left_s = max(near[cause], policy.warning.total_seconds() - facts.warned_s)", "left_s = near[cause]", "tests/instances/test_lifetime_rules.py::test_f48_nothing_is_stopped"),
    Mutant("F48", "apps/instances/lifetime/judging.py", "elapsed_s is None or elapsed_s > GAP_PACES * pace", "elapsed_s is None", "tests/instances/test_lifetime_rules.py::test_f48_a_look_without"),
    Mutant("F48", "apps/instances/lifetime/watching.py", "            held.look = None\n", "", "tests/instances/test_lifetime.py::test_f48_one_failed_look"),
    Mutant("F48", "apps/instances/lifetime/acting.py", "            keep_until=life.keep_until,\n", "", "tests/instances/test_lifetime.py::test_a_keep_that_comes"),
    Mutant("F48", "platform/kubekit/activity.py", 'if lines.get("jupyter") == "silent":', "if False:", "tests/kubekit/test_activity.py::test_f48_what_is_not_all"),
    Mutant("F1", LISTWATCH, "READ_TIMEOUT_S = 50.0", "READ_TIMEOUT_S = 3600.0", f"{WATCHING}::test_f01_no_watch"),
    Mutant("F2", STREAMS, 'if event.get("type") == "ERROR":', "if False:", f"{WATCHING}::test_f02"),
    Mutant("F2", LISTWATCH, "            except KubeError as error:\n", "            except IndexError as error:\n", f"{WATCHING}::test_f02"),
    Mutant("F4", RECONCILE, "            return self.look()\n        if isinstance(error, QuotaExceeded)", "            return self.refuse(Conflict('taken'))\n        if isinstance(error, QuotaExceeded)", f"{WRITING}::test_f04"),
    Mutant("F3", "apps/clusters/reaper.py", "    for label, raw in found:\n", "    for label, raw in ():\n", f"{WRITING}::test_f03"),
    Mutant("F3", "apps/clusters/reaper.py", "now - row.first_seen_at >= timedelta(seconds=settings.PORTAL_ORPHAN_GRACE_S)", "True", f"{WRITING}::test_f03"),
    Mutant("F3", "apps/instances/reconcile.py", "    return owed if bool(observation.replicas) != (instance.state in LAUNCHED) else {}", "    return {}", "tests/instances/test_life.py::test_a_stop_that_somebody"),
    Mutant("F3", "apps/instances/decide.py", "    return not found.settled or (found.replicas > 0 and found.id == str(instance.pk))", "    return not found.settled", "tests/instances/test_life.py::test_a_stop_that_somebody"),
    Mutant("F4", RECONCILE, "        if attempt.pod_uid:\n            return self.end(from_end(POD_GONE, None))\n", "        return self.end(from_end(POD_GONE, None))\n", f"{WRITING}::test_f04"),
    Mutant("F4", RECONCILE, "        if seen.attempt_id != str(attempt.pk):", "        if False:", f"{WRITING}::test_f04"),
    Mutant("F5", RECONCILE, "        if attempt.pod_uid and seen.pod.uid != attempt.pod_uid:", "        if False:", f"{WRITING}::test_f05"),
    Mutant("F5", RECONCILE, "seen.pod.name, uid=seen.pod.uid, grace_s", "seen.pod.name, grace_s", f"{WRITING}::test_f05"),
    Mutant("F6", "apps/instances/decide.py", "if pod is None or pod.labels.get(names.GENERATION) != str(instance.launch):", "if pod is None:", f"{WATCHING}::test_f06"),
    Mutant("F7", "platform/kubekit/build/task.py", '    metadata["finalizers"] = [names.RESULT_FINALIZER]\n', "", f"{WATCHING}::test_f07"),
    Mutant("F7", RECONCILE, "        try:\n            finishing.read_to_end(", "        finishing.pod_is_gone(self.cluster, self.namespace, self.attempt)\n        try:\n            finishing.read_to_end(", f"{WATCHING}::test_f07"),
    Mutant("F7", RECONCILE, "            if self.attempt.failures < LOG_TRIES:", "            if False:", f"{WATCHING}::test_f07"),
    Mutant("F7", "platform/kubekit/diagnose/endings.py", 'POD_GONE = AttemptEnd(outcome="lost"', 'POD_GONE = AttemptEnd(outcome="failed"', f"{WATCHING}::test_f07"),
    Mutant("F8", RECONCILE, "        if seen.finished or self.never_ran(seen):", "        if seen.finished or self.never_ran(seen) or seen.pod.unreachable:", f"{WATCHING}::test_f08"),
    Mutant("F8", "apps/instances/decide.py", 'if finding is not None and finding.code in CLUSTER_AWAY | {"node_lost"}:', "if finding is not None and finding.code in CLUSTER_AWAY:", f"{WATCHING}::test_f08"),
    Mutant("F9", "apps/clusters/reaper.py", "labels = {names.INSTALL: install_id(), names.KIND: reapable.label}", "labels = {names.KIND: reapable.label}", f"{WATCHING}::test_f09"),
    Mutant("F9", "apps/clusters/watcher.py", "        return _labels(raw).get(names.INSTALL) == self.install", "        return True", f"{WATCHING}::test_f09"),
    Mutant("F10", "platform/kubekit/names.py", 'slug_and_digest(queue_slug, "queue", str(queue_id), prefix="mlp-")', 'slug_and_digest(queue_slug, "queue", "", prefix="mlp-")', f"{QUOTA}::test_f10"),
    Mutant("F10", "apps/tenants/reconcile.py", "return labels.get(names.INSTALL) == install_id() and labels.get(names.ID) == str(queue.pk)", "return True", f"{QUOTA}::test_f10"),
    Mutant("F10", "apps/tenants/reconcile.py", "evidence=_blockers(found)", "evidence=()", f"{QUOTA}::test_f10"),
    Mutant("F12", RECONCILE, "    if not attempt.pod_name:\n        return round_.begin()", "    if not attempt.pod_uid:\n        return round_.begin()", f"{WRITING}::test_f12"),
    Mutant("F12", RECONCILE, "PermissionDenied | KubeConflict)", "PermissionDenied)", f"{WRITING}::test_f12"),
    Mutant("F12", CLIENT, "for last in (wrote, True):", "for last in (False, True):", f"{WRITING}::test_f12"),
    Mutant("F13", "apps/tenants/checker.py", "    elif quota > requests:", "    elif False:", f"{QUOTA}::test_f13"),
    Mutant("F13", "apps/tenants/books.py", "    if not wrong:\n", "    if True:\n", "tests/tenants/test_books.py::test_f13"),
    Mutant("F13", "apps/core/standing.py", "            for hook in _hooks:\n", "            for hook in ():\n", "tests/tenants/test_books.py::test_f13"),
    Mutant("F14", "platform/kubekit/build/queue.py", "        check_quota_key(key)\n        hard", "        hard", f"{QUOTA}::test_f14"),
    Mutant("F14", "platform/kubekit/build/queue.py", '**{f"requests.{resource}": str(count)', '**{f"limits.{resource}": str(count)', f"{QUOTA}::test_f14"),
    Mutant("F14", "platform/kubekit/build/queue.py", "resource_quota(spec), limit_range(spec), *", "resource_quota(spec), *", f"{QUOTA}::test_f14"),
    Mutant("F16", "apps/core/claims.py", "SELECT id, claimed_until IS NULL OR claimed_until <= %(now)s AS free", "SELECT id, TRUE AS free", f"{QUEUEING}::test_f16"),
    Mutant("F16", "apps/core/claims.py", "pokes = row.pokes + CASE WHEN seen.free THEN 0 ELSE 1 END", "pokes = row.pokes", f"{QUEUEING}::test_f16"),
    Mutant("F17", "platform/mlportal/celery.py", "        wake.ring_sweep()", "        return", f"{QUEUEING}::test_f17"),
    Mutant("F18", "apps/core/reconciling.py", "    if len(found) >= limit:\n        back.append(now + FULL_BATCH)\n", "", f"{QUEUEING}::test_f18"),
    Mutant("F18", "apps/core/reconciling.py", "        if when > now:\n            return min", "        if True:\n            return min", f"{QUEUEING}::test_f18"),
    Mutant("F19", "apps/core/claims.py", "due_at = CASE WHEN seen.free THEN %(now)s ELSE row.due_at END", "due_at = row.due_at", "tests/core/test_claims.py::test_a_row_whose_holder_dies"),
    Mutant("F19", "apps/core/claims.py", "free = Q(claimed_until__isnull=True) | Q(claimed_until__lte=now)", "free = Q(claimed_until__isnull=True)", f"{WRITING}::test_f19"),
    Mutant("F19", FINISHING, "filter(pk=attempt.pk, claim_token=claim.token).update(**values)", "filter(pk=attempt.pk).update(**values)", f"{WRITING}::test_f19"),
    Mutant("F19", RECONCILE, "            finishing.take_back(self.attempt, self.cluster, self.namespace)\n", "", f"{WRITING}::test_f19"),
    Mutant("F19", FINISHING, "attempt.claim_token != one.claim.token or ", "", "tests/flows/test_together.py::test_a_claim_that"),
    Mutant("F19", FINISHING, "WHERE a.id = v.id AND a.claim_token = v.token", "WHERE a.id = v.id", "tests/flows/test_together.py::test_a_pod_whose_attempt"),
    Mutant("F19", "apps/core/reconciling.py", "timedelta(seconds=BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])", "timedelta(seconds=1)", f"{QUEUEING}::test_f19"),
    Mutant("F19", "apps/core/reconciling.py", "        if claim.failures + 1 >= TOLD_AFTER and", "        if False and", "tests/core/test_standing.py::test_f19"),
    Mutant("F19", "platform/mlportal/env.py", '"PORTAL_LEASE_S") or "40"', '"PORTAL_LEASE_S") or "60"', "tests/core/test_claims.py::test_a_write_that_begins"),
    Mutant("F20", "apps/core/reconciling.py", "    transaction.on_commit(lambda: send_hint(kind, pk))", "    send_hint(kind, pk)", f"{QUEUEING}::test_f20"),
    Mutant("F20", "apps/core/reconciling.py", 'ignore_result=True)\n    except (OperationalError, RedisError, CeleryError, OSError) as error:\n        log.warning("hint for', 'ignore_result=True)\n    except IndexError as error:\n        log.warning("hint for', f"{QUEUEING}::test_f20"),
    Mutant("F20", "apps/core/outbox.py", "        transaction.on_commit(lambda: send_hint(message.pk))", "        send_hint(message.pk)", f"{QUEUEING}::test_f20"),
    Mutant("F21", "apps/flows/scheduler.py", "ON CONFLICT (flow_id, scheduled_at) DO NOTHING RETURNING", "RETURNING", f"{QUEUEING}::test_f21"),
    Mutant("F21", "apps/flows/scheduler.py", "LIMIT %s FOR UPDATE SKIP LOCKED", "LIMIT %s", f"{QUEUEING}::test_f21"),
    Mutant("F26", RECONCILE, "        if attempt.start_deadline_at is not None and self.now >= attempt.start_deadline_at:", "        if False:", f"{WRITING}::test_f26"),
    Mutant("F27", RECONCILE, "            return self.after(STOPPING_S if limits.grace_s() else 0.5)", "            return self.end(self.ending_of_stop(seen))", f"{WRITING}::test_f27"),
    Mutant("F27", RECONCILE, "and (asked is None or ended < asked)", "", f"{WRITING}::test_f27"),
    Mutant("F27", "platform/kubekit/build/task.py", '        body["activeDeadlineSeconds"] = spec.deadline_s', "        pass", f"{WRITING}::test_f27"),
)  # fmt: skip


def main(wanted: list[str]) -> int:
    """Run the mutants; how many of them nobody noticed."""
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.number in wanted]
    survived: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="mlportal-mutants-") as folder:
        tree = Path(folder, "tree")
        copy_to(tree)
        for test in sorted({mutant.test for mutant in chosen}):
            failing = first_failing(test, tree)
            assert failing is None, f"{failing} fails without any mutant, so it says nothing about them"
        for mutant in chosen:
            copy_to(tree)
            mutant.apply(tree)
            failing = first_failing(mutant.test, tree)
            words = failing or mutant.before.strip().splitlines()[0][:80]
            print(f"{'killed  ' if failing else 'SURVIVED'} {mutant.number:4} {mutant.file}: {words}", flush=True)
            if failing is None:
                survived.append(mutant)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants were noticed")
    return len(survived)


def copy_to(tree: Path) -> None:
    """The project as it is."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, tree / name)


def first_failing(test: str, tree: Path) -> str | None:
    """The name of the first test that fails there (and not: could not be collected or prepared)."""
    file, _, prefix = test.partition("::")
    command = [sys.executable, "-m", "pytest", file, "-k", prefix, "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    # What waits for something that will not come need not wait for long here.
    env = {**os.environ, "MLPORTAL_FAULT_PATIENCE_S": "20", "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=900)
    failing = re.search(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
    assert done.returncode == (1 if failing else 0), done.stdout[-3000:] + done.stderr[-3000:]
    return failing.group(1) if failing else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
