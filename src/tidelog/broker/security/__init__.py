"""Who a client is, and who may do what.

Logins, SCRAM credentials and delegation tokens; access control lists, how they are kept, and the
decisions made by them.
"""
