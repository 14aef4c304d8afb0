"""The commented example that `tidelog pipeline init` writes, and a test of it. The demo runs the
same file, and its generator writes the topics that the file reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.errors import StartupError
from tidelog.pipeline.declaration.file import FILE_NAME

ORDERS_TOPIC: Final = "shop.orders"
PAYMENTS_TOPIC: Final = "shop.payments"
REVENUE_TOPIC: Final = "shop.revenue"
DEAD_LETTER_TOPIC: Final = "shop.dead-letter"
PAID_ORDERS_FOLDER: Final = "paid_orders"
WINDOW_MINUTES: Final = 10

EXAMPLE: Final = f"""\
# A tidelog pipeline: topics in, SQL in between, a topic and Parquet files out.
#
#     tidelog pipeline validate .     the schemas and plans, without running
#     tidelog pipeline test .         the tests in tests/, without a broker
#     tidelog pipeline plan .         what a run would do to each query
#     tidelog pipeline run .          runs until Ctrl-C; goes on from its checkpoint next time
#     tidelog pipeline export . --sdp DIR     the same for Spark Declarative Pipelines
#
# `tidelog demo` writes orders and payments to the topics that are read here. By hand:
#     echo '{{"order_id": "o1", "category": "tea", "amount_cents": 450, \\
#       "ordered_at": "2026-01-05T08:00:00Z"}}' | kcat -b 127.0.0.1:9092 -t {ORDERS_TOPIC} -P

[pipeline]
name = "shop"
bootstrap = "127.0.0.1:9092"        # tidelog or any Kafka
checkpoint = "checkpoint"           # how far it has come; `plan` tells what a change means
trigger = "1 second"                # "available-now": read what there is, then end
dead_letter = "{DEAD_LETTER_TOPIC}"    # rows that do not parse, with the reason in a header

[spark]
master = "local[*]"                 # or remote = "sc://host:15002" for Spark Connect
"spark.sql.shuffle.partitions" = 2  # any setting of Spark, its name in quotes

# Each source is a table for SQL, with the columns of its schema and, of the record itself,
# _key, _topic, _partition, _offset, _timestamp and _headers. "not null" columns are required:
# a row without one goes to the dead-letter topic. The watermark says how late rows may come.

[source.orders]
topic = "{ORDERS_TOPIC}"
partitions = 2                      # made with so many if the topic is not there
format = "json"                     # json, csv, raw, avro or protobuf
schema = \"\"\"
    order_id string not null, category string not null,
    amount_cents bigint not null, ordered_at timestamp not null
\"\"\"
watermark = {{ column = "ordered_at", delay = "10 minutes" }}

[source.payments]
topic = "{PAYMENTS_TOPIC}"
partitions = 2
schema = "order_id string not null, method string, paid_at timestamp not null"
watermark = {{ column = "paid_at", delay = "10 minutes" }}

# A view sees the sources and the views above it. Instead of SQL it may be a function
# of a file beside this one: python = "views.py:paid_orders", inputs = ["orders", "payments"]

[view.paid_orders]                  # the limits in time let Spark forget orders nobody pays
sql = \"\"\"
    select o.order_id, o.category, o.amount_cents, o.ordered_at, p.method, p.paid_at
    from orders o
    join payments p
      on p.order_id = o.order_id
     and p.paid_at >= o.ordered_at
     and p.paid_at <= o.ordered_at + interval 30 minutes
\"\"\"

[view.revenue]
sql = \"\"\"
    select window.start as window_start, category,
           count(*) as orders, sum(amount_cents) as amount_cents
    from paid_orders
    group by window(ordered_at, '{WINDOW_MINUTES} minutes'), category
\"\"\"

# These sinks keep state, so each is a streaming query of its own. Both get every row exactly
# once; in the topic that holds for readers with isolation.level read_committed.

[sink.revenue]
from = "revenue"
topic = "{REVENUE_TOPIC}"
format = "json"
key = "concat(date_format(window_start, 'HH:mm'), ' ', category)"

[sink.{PAID_ORDERS_FOLDER}]
from = "paid_orders"
parquet = "{PAID_ORDERS_FOLDER}"
"""

TEST: Final = """\
# A test of the pipeline: records in, rows out, no broker.
#     tidelog pipeline test .

[[step]]
orders = [
  { order_id = "o1", category = "tea", amount_cents = 450, ordered_at = "2026-01-05T08:00:00Z" },
  { order_id = "o2", category = "tea", amount_cents = 250, ordered_at = "2026-01-05T08:09:59Z" },
  { order_id = "o3", category = "tea", amount_cents = 990, ordered_at = "2026-01-05T08:01:00Z" },
  { _value = "<order id='7'/>" },
]
payments = [
  { order_id = "o1", method = "card", paid_at = "2026-01-05T08:02:00Z" },
  { order_id = "o2", method = "cash", paid_at = "2026-01-05T08:12:00Z" },
]

[[step]]                            # the next day moves the watermark on, so windows close
orders = [
  { order_id = "o4", category = "tea", amount_cents = 1, ordered_at = "2026-01-06T08:00:00Z" },
]
payments = [{ order_id = "o4", paid_at = "2026-01-06T08:00:00Z" }]

[expect]                            # o3 was never paid
revenue = [
  { window_start = "2026-01-05T08:00:00.000Z", category = "tea", orders = 2, amount_cents = 700 },
]
"dead-letter.orders" = [{ reason = "is no JSON object" }]
"""


def write_example(folder: Path, bootstrap: str = "127.0.0.1:9092") -> Path:
    """Refuses to write over a pipeline that is there."""
    file = folder / FILE_NAME
    if file.exists():
        raise StartupError(f"{file} is there already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(EXAMPLE.replace("127.0.0.1:9092", bootstrap), encoding="utf-8")
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "revenue.toml").write_text(TEST, encoding="utf-8")
    return file
