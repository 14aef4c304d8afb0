"""The demo that `tidelog demo` shows: a shop's morning through a broker, a pipeline and a check.

    shop           orders and payments, late and broken ones too, and the ledger of what was sent
    event_feed     writes the shop's events to the topics, at a steady pace
    ledger_check   what came out, against the ledger and against Spark's batch answer
    story          the run from beginning to end with its broker, and what it prints

The broker is another process and the pipeline is read from a file, so nothing here is privileged:
whatever the demo does, a user can do with the same file and any Kafka client.
"""
