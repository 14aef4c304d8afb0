"""Messages of topics, as the console reads, searches, follows, writes and moves them. No HTTP.

expression   the small language of filters, parsed
filtering    a filter applied to records, and the bytes that a match must contain
documents    JSON documents as filters see them, and text that is safe to show
decoding     keys and values as text, JSON, numbers and so on
schemas      Avro, Protobuf and framed JSON, by the id of a schema
cursor       how far a scan has come in each partition, as text for an address
scanning     batches in, matching records out, one partition's stretch at a time
reading      a page of records: forward from a place, or the newest first
apart        the threads that read, so that the console's event loop does not wait
tail         records as they are written
transfer     records as JSON lines, out and in
"""
