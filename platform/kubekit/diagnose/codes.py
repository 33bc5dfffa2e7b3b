"""Every code a diagnosis can give, so that whoever words them can prove that none is missing."""

from __future__ import annotations

#: ``Finding.code``.
FINDING_CODES = frozenset({
    "cluster_unauthorized", "cluster_unreachable", "command_not_found", "config_error", "config_missing",
    "crashed", "crashed_at_start", "deadline_exceeded", "disk_limit", "evicted", "forbidden_by_policy",
    "image_architecture", "image_denied", "image_name_invalid", "image_not_found", "image_pull_failed", "invalid_spec",
    "namespace_missing", "namespace_terminating", "no_node_cpu", "no_node_fits", "no_node_gpu",
    "no_node_memory", "no_node_pods", "node_lost", "node_refused", "node_trouble", "not_answering",
    "out_of_memory", "permission_missing", "placement_mismatch", "preempted", "quota_exceeded", "registry_unreachable",
    "shared_memory_full", "start_timeout", "volume_busy", "volume_full", "volume_lost", "volume_missing",
    "volume_mount_failed", "volume_not_bound",
})  # fmt: skip

#: ``Finding.next``: what helps.
NEXT_CODES = frozenset({
    "ask_admin", "bigger_size", "change_settings", "choose_other_queue", "choose_other_volume", "fix_command",
    "fix_image", "fix_image_access", "free_or_grow_volume", "free_quota", "raise_timeout", "see_log",
    "smaller_size", "start_again", "stop_other_user", "wait_or_tell_admin", "write_to_volume",
})  # fmt: skip

#: ``AttemptEnd.code`` of `classify_attempt_end`; `classify_no_start` gives finding codes as well.
END_CODES = frozenset({
    "cancelled", "command_not_found", "deadline_exceeded", "deleted_from_outside", "disk_limit", "disrupted",
    "drained", "evicted", "exit_code", "killed_by_signal", "never_started", "node_lost", "node_refused",
    "node_restarted", "node_shutdown", "out_of_memory", "pod_gone", "preempted", "preparation_failed",
    "shared_memory_full", "start_timeout", "succeeded", "volume_full",
})  # fmt: skip

#: Findings that are a state of waiting and may well end by themselves.
MAY_PASS = frozenset({
    "quota_exceeded", "no_node_cpu", "no_node_memory", "no_node_gpu", "no_node_pods", "no_node_fits",
    "volume_not_bound", "volume_busy", "registry_unreachable", "cluster_unreachable", "permission_missing",
    "preempted", "evicted",
})  # fmt: skip
