"""`tidelog dump-log --files a.log,b.index`: Kafka's DumpLogSegments, with its flags and its lines.

Errors are lines on standard error, and so are disagreements between files. Exit codes: 0 all shown,
1 something could not be read, 2 wrong usage or nothing that can be shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog.tools.cli.frame import Command
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


class Wishes(NamedTuple):
    """What the options say."""

    files: str
    deep_iteration: bool
    print_data_log: bool
    skip_record_metadata: bool
    index_sanity_check: bool
    verify_index_only: bool
    max_message_size: int
    max_bytes: int | None
    offsets_decoder: bool
    transaction_log_decoder: bool
    key_decoder_class: str | None
    value_decoder_class: str | None
    output: str
    out: str | None
    cluster_metadata_decoder: bool
    remote_log_metadata_decoder: bool
    share_group_state_decoder: bool


@click.command("dump-log", cls=Command)
@click.option(
    "--files", required=True, metavar="FILE,...", help="Segments, indexes and snapshots to show."
)
@click.option("--deep-iteration", is_flag=True, help="Show records, not only batches.")
@click.option("--print-data-log", is_flag=True, help="Show keys and values too; implies deep.")
@click.option("--skip-record-metadata", is_flag=True, help="Of records show only keys and values.")
@click.option("--index-sanity-check", is_flag=True, help="Only what a start checks of an index.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes, do not show them.")
@click.option("--max-message-size", type=int, default=5 << 20, metavar="BYTES", show_default=True)
@click.option("--max-bytes", type=int, metavar="BYTES", help="Of each log, from its start.")
@click.option("--offsets-decoder", is_flag=True, help="Records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Records of __transaction_state.")
@click.option("--key-decoder-class", is_flag=False, flag_value=STRING_DECODER, metavar="[CLASS]")
@click.option("--value-decoder-class", is_flag=False, flag_value=STRING_DECODER, metavar="[CLASS]")
@click.option(
    "--output",
    type=click.Choice(FORMS),
    default="text",
    show_default=True,
    help="Text as Kafka's; JSON lines; a table.",
)
@click.option("--out", metavar="FILE", help="Where to write; standard output by default.")
@click.option("--cluster-metadata-decoder", is_flag=True, hidden=True)
@click.option("--remote-log-metadata-decoder", is_flag=True, hidden=True)
@click.option("--share-group-state-decoder", is_flag=True, hidden=True)
def command(**given: Any) -> int:
    """Show what is in segment, index and snapshot files."""
    wishes = Wishes(**given)
    try:
        decoder = make_decoder(wishes)
        deep = wishes.deep_iteration or decoder is not None
        output = make_output(wishes, deep)
        return show(wishes, decoder, deep, output)
    except NothingToShow as problem:
        fail(str(problem))
        return 2
    except DumpError as problem:
        return fail(str(problem))


def show(wishes: Wishes, decoder: Decoder | None, deep: bool, output: Output) -> int:
    from tidelog.tools.dump.dump_log_segments import (
        DumpOptions,
        IndexOptions,
        LogOptions,
        Progress,
        dump_files,
    )

    options = DumpOptions(
        LogOptions(deep, decoder, wishes.max_bytes),
        IndexOptions(wishes.index_sanity_check, wishes.verify_index_only, wishes.max_message_size),
    )
    lines_scroll = wishes.out is None and sys.stdout.isatty()
    progress = Progress(None if lines_scroll else sys.stderr)
    return 0 if dump_files(wishes.files.split(","), options, output, progress) else 1


def make_decoder(wishes: Wishes) -> Decoder | None:
    for name, what in NOT_SHOWN.items():
        if getattr(wishes, name):
            raise DumpError(
                f"--{name.replace('_', '-')}: {what} are not decoded here; "
                "--print-data-log shows their bytes as text, --output jsonl as they are"
            )
    from tidelog.tools.dump import decoders

    if wishes.offsets_decoder:
        return decoders.decode_group_record
    if wishes.transaction_log_decoder:
        return decoders.decode_transaction
    classes = (wishes.key_decoder_class, wishes.value_decoder_class)
    if wishes.print_data_log or any(classes):
        key, value = (decoders.column_decoder(name or STRING_DECODER) for name in classes)
        return decoders.plain_decoder(key, value)
    return None


def make_output(wishes: Wishes, deep: bool) -> Output:
    if wishes.output in ("parquet", "arrow"):
        from tidelog.tools.dump.table_output import TableOutput

        if wishes.out is None:
            raise DumpError(f"--output {wishes.output} is a file: say which with --out FILE")
        return TableOutput(wishes.out, wishes.output, deep=deep)
    stream = sys.stdout
    if wishes.out is not None:
        stream = open(wishes.out, "w", encoding="utf-8")  # noqa: SIM115  closed by the output
    if wishes.output == "jsonl":
        from tidelog.tools.dump.json_output import JsonLinesOutput

        return JsonLinesOutput(stream)
    from tidelog.tools.dump.text_output import TextOutput

    return TextOutput(stream, skip_record_metadata=wishes.skip_record_metadata)
