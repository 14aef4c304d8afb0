"""tidelog: a partitioned, replicated commit log that unmodified Kafka clients use."""

__version__ = "0.1.0"
