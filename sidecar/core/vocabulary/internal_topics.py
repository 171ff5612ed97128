"""The names of Kafka's internal topics (org.apache.kafka.common.internals.Topic)."""

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
SHARE_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset((OFFSETS, TRANSACTIONS, SHARE_STATE))
