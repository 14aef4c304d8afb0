"""`tidelog dump-log --files a.log,b.index`: Kafka's DumpLogSegments, with its flags and its lines.

Errors are lines on standard error, and so are disagreements between files. Exit codes: 0 all shown,
1 something could not be read, 2 wrong usage or nothing that can be shown.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tidelog.tools.cli.main import fail
from tidelog.tools.dump.dump_errors import DumpError, NothingToShow

if TYPE_CHECKING:
    from tidelog.tools.dump.decoders import Decoder
    from tidelog.tools.dump.output import Output

FORMS = ("text", "jsonl", "parquet", "arrow")
STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
NOT_SHOWN = {
    "cluster_metadata_decoder": "records of a KRaft controller",
    "remote_log_metadata_decoder": "records of tiered storage",
    "share_group_state_decoder": "records of share groups",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files", required=True, metavar="FILE,...", help="segments, indexes and snapshots to show"
    )
    parser.add_argument(
        "--deep-iteration", action="store_true", help="show records, not only batches"
    )
    parser.add_argument(
        "--print-data-log", action="store_true", help="show keys and values too; implies deep"
    )
    parser.add_argument(
        "--skip-record-metadata", action="store_true", help="of records show only keys and values"
    )
    parser.add_argument(
        "--index-sanity-check", action="store_true", help="only what a start checks of an index"
    )
    parser.add_argument(
        "--verify-index-only", action="store_true", help="compare indexes, do not show them"
    )
    parser.add_argument("--max-message-size", type=int, default=5 << 20, metavar="BYTES")
    parser.add_argument(
        "--max-bytes", type=int, metavar="BYTES", help="of each log, from its start"
    )
    parser.add_argument(
        "--offsets-decoder", action="store_true", help="records of __consumer_offsets"
    )
    parser.add_argument(
        "--transaction-log-decoder", action="store_true", help="records of __transaction_state"
    )
    for column in ("key", "value"):
        parser.add_argument(
            f"--{column}-decoder-class", nargs="?", const=STRING_DECODER, metavar="CLASS"
        )
    for name in NOT_SHOWN:
        parser.add_argument(
            f"--{name.replace('_', '-')}", action="store_true", help=argparse.SUPPRESS
        )
    parser.add_argument(
        "--output", choices=FORMS, default="text", help="text as Kafka's; JSON lines; a table"
    )
    parser.add_argument("--out", metavar="FILE", help="where to write; standard output by default")


def run(arguments: argparse.Namespace) -> int:
    try:
        decoder = make_decoder(arguments)
        deep = arguments.deep_iteration or decoder is not None
        output = make_output(arguments, deep)
        return show(arguments, decoder, deep, output)
    except NothingToShow as problem:
        fail(str(problem))
        return 2
    except DumpError as problem:
        return fail(str(problem))


def show(arguments: argparse.Namespace, decoder: Decoder | None, deep: bool, output: Output) -> int:
    from tidelog.tools.dump.dump_log_segments import (
        DumpOptions,
        IndexOptions,
        LogOptions,
        Progress,
        dump_files,
    )

    options = DumpOptions(
        LogOptions(deep, decoder, arguments.max_bytes),
        IndexOptions(
            arguments.index_sanity_check, arguments.verify_index_only, arguments.max_message_size
        ),
    )
    lines_scroll = arguments.out is None and sys.stdout.isatty()
    progress = Progress(None if lines_scroll else sys.stderr)
    return 0 if dump_files(arguments.files.split(","), options, output, progress) else 1


def make_decoder(arguments: argparse.Namespace) -> Decoder | None:
    for name, what in NOT_SHOWN.items():
        if getattr(arguments, name):
            raise DumpError(
                f"--{name.replace('_', '-')}: {what} are not decoded here; "
                "--print-data-log shows their bytes as text, --output jsonl as they are"
            )
    from tidelog.tools.dump import decoders

    if arguments.offsets_decoder:
        return decoders.decode_group_record
    if arguments.transaction_log_decoder:
        return decoders.decode_transaction
    classes = (arguments.key_decoder_class, arguments.value_decoder_class)
    if arguments.print_data_log or any(classes):
        key, value = (decoders.column_decoder(name or STRING_DECODER) for name in classes)
        return decoders.plain_decoder(key, value)
    return None


def make_output(arguments: argparse.Namespace, deep: bool) -> Output:
    if arguments.output in ("parquet", "arrow"):
        from tidelog.tools.dump.table_output import TableOutput

        if arguments.out is None:
            raise DumpError(f"--output {arguments.output} is a file: say which with --out FILE")
        return TableOutput(arguments.out, arguments.output, deep=deep)
    stream = sys.stdout
    if arguments.out is not None:
        stream = open(arguments.out, "w", encoding="utf-8")  # noqa: SIM115  closed by the output
    if arguments.output == "jsonl":
        from tidelog.tools.dump.json_output import JsonLinesOutput

        return JsonLinesOutput(stream)
    from tidelog.tools.dump.text_output import TextOutput

    return TextOutput(stream, skip_record_metadata=arguments.skip_record_metadata)
