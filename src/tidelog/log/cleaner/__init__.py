"""Compaction: of every key only the last record stays; a tombstone stays only for a time.

    clean head                      dirty tail                        not yet cleanable
    each key once, gaps in offsets  records since the last cleaning   active segment, above the
                                                                      last stable offset, too young

A tombstone is a record that has a key and no value: it deletes the key. The first round that keeps
it stamps its batch with a delete horizon, delete.retention.ms from then (KIP-534). A round after
the horizon drops it. Markers go the same way once nothing of their transaction is left. Batches of
magic 0 and 1 cannot carry a horizon; their tombstones go by the age of their segment.

One round over a log: `log_to_clean` says how far it may go, how dirty the log is and what the round
needs to know; `cleaner` has `segment_pass` build an offset map of the dirty tail and copy what
stays, one group of segments after another, into `cleaned_segment`s; the log swaps each in for its
group. `log_cleaner_manager` chooses the log and keeps the state; it and the swaps belong to the
broker loop, the copying to a thread. Only `log_cleaner` knows of both.
"""
