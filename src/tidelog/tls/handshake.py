"""Why there is no secure connection: OpenSSL's errors in the words of whoever has to mend it.

Not compiled, because a compiled class cannot be an exception of Python's own kinds.
"""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Final


class HandshakeProblem(StrEnum):
    """Why there is no secure connection, for counting; a HandshakeFailed says it in full."""

    NOT_TLS = "peer does not speak TLS"
    NO_COMMON_VERSION = "no TLS version in common"
    NO_COMMON_CIPHER = "no cipher in common"
    CERTIFICATE_REFUSED = "certificate of the peer refused"
    CERTIFICATE_MISSING = "peer has no certificate"
    REFUSED_BY_PEER = "TLS refused by the peer"
    OTHER = "TLS failed"


class HandshakeFailed(ConnectionError):
    def __init__(self, problem: HandshakeProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


NOT_TLS: Final = "what it sends is not TLS; it may speak plain text on this port"
_NO_VERSION: Final = "no TLS version in common (ssl.enabled.protocols)"
_NO_CIPHER: Final = (
    "no cipher in common (ssl.cipher.suites, ssl.enabled.protocols, and the kind of the key)"
)
# OpenSSL's reasons, as far as they can be told better than by their names.
_REASONS: Final = {
    "WRONG_VERSION_NUMBER": (HandshakeProblem.NOT_TLS, NOT_TLS),
    "HTTP_REQUEST": (HandshakeProblem.NOT_TLS, "it sends HTTP"),
    "RECORD_LAYER_FAILURE": (HandshakeProblem.NOT_TLS, NOT_TLS),
    "PACKET_LENGTH_TOO_LONG": (HandshakeProblem.NOT_TLS, NOT_TLS),
    "UNSUPPORTED_PROTOCOL": (HandshakeProblem.NO_COMMON_VERSION, _NO_VERSION),
    "VERSION_TOO_LOW": (HandshakeProblem.NO_COMMON_VERSION, _NO_VERSION),
    "WRONG_SSL_VERSION": (HandshakeProblem.NO_COMMON_VERSION, _NO_VERSION),
    "NO_PROTOCOLS_AVAILABLE": (HandshakeProblem.NO_COMMON_VERSION, _NO_VERSION),
    "TLSV1_ALERT_PROTOCOL_VERSION": (HandshakeProblem.NO_COMMON_VERSION, _NO_VERSION),
    "NO_SHARED_CIPHER": (HandshakeProblem.NO_COMMON_CIPHER, _NO_CIPHER),
    "NO_SUITABLE_SIGNATURE_ALGORITHM": (HandshakeProblem.NO_COMMON_CIPHER, _NO_CIPHER),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        HandshakeProblem.CERTIFICATE_MISSING,
        "it has no certificate, and ssl.client.auth is required",
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it wants a certificate of this side (ssl.keystore.location)",
    ),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it refused the handshake: there is no cipher in common, or it wants a certificate of this "
        "side (ssl.keystore.location)",
    ),
    "TLSV1_ALERT_UNKNOWN_CA": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it does not trust the certificate of this side (unknown CA)",
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it refused the certificate of this side",
    ),
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it refused the certificate of this side",
    ),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it refused the certificate of this side: it is not meant for this purpose",
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it refused the certificate of this side, which has expired or is not valid yet",
    ),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": (
        HandshakeProblem.REFUSED_BY_PEER,
        "it refused the certificate of this side, which is revoked",
    ),
}


def explained(error: ssl.SSLError) -> HandshakeFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"certificate verify failed: {error.verify_message}"
        return HandshakeFailed(HandshakeProblem.CERTIFICATE_REFUSED, text)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return HandshakeFailed(HandshakeProblem.OTHER, "it hung up in the middle of a TLS exchange")
    reason = getattr(error, "reason", None) or str(error)
    problem, text = _REASONS.get(reason, (HandshakeProblem.OTHER, ""))
    return HandshakeFailed(problem, text or reason.replace("_", " ").lower())
