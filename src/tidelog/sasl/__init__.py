"""SASL as Kafka speaks it, without sockets: both ends of each mechanism and of the exchange."""
