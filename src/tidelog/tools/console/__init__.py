"""The web console: pages about a cluster, served to browsers ([0036](docs/design/0036-console.md)).

It reads clusters through `tidelog.client` alone, so it works with any Kafka. Starlette, uvicorn and
Jinja2 come with the extra `console`; nothing outside this package imports it before it is needed.
"""
