"""Who may do what: access control lists, how they are kept, and the decisions made by them."""
