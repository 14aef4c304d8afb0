"""How the leader of a classic group shares partitions out, by Kafka's four ways or a user's own."""
