"""Features of nats-server that can be turned on and off. JetLake has none of them."""

from __future__ import annotations

FEATURES = dict.fromkeys(("js_ack_fc_v2", "js_api_reply_v2", "js_raft_delete_range", "js_snapshot_sources"), False)
