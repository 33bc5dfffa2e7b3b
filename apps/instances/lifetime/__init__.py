"""How long an instance runs: what counts as activity, who is warned of what, when it is stopped."""
