"""Access tokens of OAuth 2: how a broker judges them, and where a client gets them."""
