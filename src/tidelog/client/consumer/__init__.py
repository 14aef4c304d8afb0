"""The consumer: subscriptions, positions, fetch sessions, groups of both protocols, commits."""
