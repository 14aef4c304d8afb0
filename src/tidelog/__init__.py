"""tidelog: a partitioned, replicated commit log that unmodified Kafka clients use."""

from tidelog._compiled import choose

__version__ = "0.1.0"

COMPILED = choose()  # before any module is imported that may be compiled
