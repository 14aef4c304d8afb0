"""`tidelog elect [TOPIC[:0,1]]...`: makes the preferred replicas leaders again, or any replica.

Unclean elections may lose records: a replica that was not in sync becomes leader. They happen only
where a partition has no leader.
"""

from __future__ import annotations

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.group import chosen_partitions
from tidelog.tools.cli.output import columns, failures, say, show_rows
from tidelog.tools.cli.session import ClusterCommand, Session, pass_session
from tidelog.types import NO_LEADER, TopicPartition


@click.command("elect", cls=ClusterCommand)
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=complete_topics)
@click.option("--all", "all_partitions", is_flag=True, help="All partitions that need it.")
@click.option("--unclean", is_flag=True, help="Where there is no leader, any replica will do.")
@click.option("--dry-run", is_flag=True, help="Only show which partitions need it.")
@pass_session
def command(
    session: Session, topics: tuple[str, ...], all_partitions: bool, unclean: bool, dry_run: bool
) -> int:
    """Elect leaders of partitions, preferred ones by default."""
    from tidelog.client.admin.partitions import ElectionType
    from tidelog.errors import ErrorCode

    if bool(topics) == all_partitions:
        raise click.UsageError("name TOPICs, or give --all")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with session.admin() as admin:
        names = topics or [each.name for each in admin.list_topics(include_internal=True)]
        chosen = chosen_partitions(admin, names)
        if dry_run:
            described = admin.describe_topics({each.topic for each in chosen})
            leaders = {
                TopicPartition(result.get().name, row.partition): row
                for result in described.values()
                for row in result.get().partitions
            }
            rows = [
                {"topic": each.topic, "partition": each.partition, "outcome": "would be elected"}
                for each in chosen
                if (row := leaders[each])
                and (row.leader_id == NO_LEADER if unclean else row.leader_id != row.replicas[0])
            ]
            show_rows(
                session.output_format,
                rows,
                columns("topic", "partition>", "outcome"),
                empty="No partition needs an election.",
            )
            return 0
        results = admin.elect_leaders(chosen if topics else None, kind)
    rows, problems = [], []
    for each, result in sorted(results.items()):
        error = result.error
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            problems.append(str(error))
            continue
        outcome = "elected" if error is None else "not needed"
        rows.append({"topic": each.topic, "partition": each.partition, "outcome": outcome})
    if rows or problems:
        show_rows(session.output_format, rows, columns("topic", "partition>", "outcome"))
    else:
        say("No partition needs an election.")
    return failures(problems)
