"""The benchmark of tidelog: the same clients, tidelog and Apache Kafka in turn, ratios printed.

Independent of tidelog's own code: brokers are processes, requests are bytes packed by hand here.
"""
