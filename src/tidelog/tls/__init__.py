"""TLS for everybody who has a socket: the broker's listeners, brokers among themselves, the client.

    settings.py         the ssl.* keys of one listener or client, typed
    stores.py           key stores and trust stores: PEM, PKCS12
    contexts.py         contexts of OpenSSL from settings and stores, and what may replace them
    handshake.py        why peers do not agree
    transport.py        the byte stream: handshake, receiving, sending
    certificate.py      what a certificate says: its subject, its other names, when it is valid
    principal_rules.py  from a subject to the name of a principal

OpenSSL does the work, through Python's own ssl module. docs/design/0024-tls.md says why.
"""
