"""The streaming queries of a pipeline, from the plan to the running ones.

checkpoint      folders of the queries, and the record of what made them
restart_plan    what starting on a checkpoint would do to each query
layout          which queries there are, and which sinks share one
start           the queries started, each on its folder of the checkpoint
topic_writer    rows of a batch to topics, for shared queries and update mode
running         queries while they run and fail, and how far they are
run_status      what a running pipeline tells other processes
"""
