"""Names of Kafka's topics: which are legal, and which are internal (org.apache.kafka.common.internals.Topic)."""

import re

TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")
OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
SHARE_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset((OFFSETS, TRANSACTIONS, SHARE_STATE))
