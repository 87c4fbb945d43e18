"""Checks deliveries, given as JSON on standard input, with the published client's own validator."""

import json
import sys

from pierre_storage import validate_webhook

given = json.load(sys.stdin)
for delivery in given["deliveries"]:
    headers, body = delivery["headers"], delivery["body"]
    result = validate_webhook(body.encode(), headers, given["secret"])
    assert result["valid"], result
    assert result["event_type"] == headers["x-pierre-event"], result
    raw = json.loads(body)
    payload = result["payload"]
    if result["event_type"] == "push":
        for name in ("ref", "before", "after", "customer_id"):
            assert payload[name] == raw[name], (name, payload)
        assert payload["repository"]["id"] == raw["repository"]["id"], payload
        assert payload["pushed_at"].tzinfo is not None, payload
    else:
        assert payload["raw"] == raw, payload
    assert not validate_webhook(body + " ", headers, given["secret"])["valid"]
    assert not validate_webhook(body, headers, given["secret"] + "x")["valid"]
print(len(given["deliveries"]))
