"""Partition logs on disk, in Kafka's own files. See docs/on-disk-format.md for every byte."""
