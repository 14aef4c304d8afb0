"""Contexts of OpenSSL from settings: what a listener, a broker among brokers, or a client speaks.

- TLS 1.2 and 1.3. No renegotiation, no compression, and no session tickets of TLS 1.3: every
  connection proves itself anew, so a certificate that was withdrawn does not come back.
- Every certificate in a trust store is trusted, also one that has signed itself for no other
  purpose, or stands in the middle of a chain: this is what Java does.
- Cipher suites have Java's names. Python cannot choose among those of TLS 1.3, so a list either has
  all of them or none; without one TLS 1.3 is not spoken.
- `replaceable` says whether new stores may follow old ones while a listener runs, as Kafka has it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from tidelog.tls.certificate import Certificate, first_certificate, subject_of
from tidelog.tls.handshake import explained
from tidelog.tls.principal_rules import InvalidRules, rule_namer
from tidelog.tls.settings import TLS_1_2, TLS_1_3, ClientAuth, TlsConfigError, TlsSettings
from tidelog.tls.stores import (
    KeyStore,
    Stamp,
    in_memory,
    read_key_store,
    read_trust_store,
    require_sound,
    stamp_of,
)

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
TLS_1_3_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
_GCM_AND_CBC: Final = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}
# From Java's names to OpenSSL's. Which of them exist is for OpenSSL to say.
TLS_1_2_SUITES: Final = {
    **{
        f"TLS_{key}_WITH_{suite}": f"{key.replace('_', '-')}-{name}"
        for key in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "DHE_DSS")
        for suite, name in _GCM_AND_CBC.items()
    },
    **{f"TLS_RSA_WITH_{suite}": name for suite, name in _GCM_AND_CBC.items()},
}


class TlsContexts(NamedTuple):
    """Of one listener: what it serves with, and what a broker calls others with."""

    settings: TlsSettings
    stamps: tuple[Stamp, Stamp]  # of the files that were read
    server: ssl.SSLContext
    # Where brokers call each other by this listener: to call with, and to try it out with, which
    # does not look at host names.
    client: ssl.SSLContext | None
    trial: ssl.SSLContext | None
    certificate: Certificate
    has_trust_store: bool
    name_of: Callable[[bytes], str] | None  # of a client's certificate


def stamps_of(settings: TlsSettings) -> tuple[Stamp, Stamp]:
    return stamp_of(settings.key_store), stamp_of(settings.trust_store)


def listener_problems(settings: TlsSettings) -> Iterator[TlsConfigError]:
    """What is wrong with them whatever the stores hold. Reads no file."""
    for store in (settings.key_store, settings.trust_store):
        try:
            require_sound(store)
        except TlsConfigError as error:
            yield settings.refused(str(error))
    if not settings.key_store.is_set:
        yield settings.refused(
            "a TLS listener needs a key and a certificate: set ssl.keystore.type and "
            "ssl.keystore.location (`tidelog certs` makes some for development)"
        )
    if settings.client_auth is not ClientAuth.NONE and not settings.trust_store.is_set:
        yield settings.refused(
            f"ssl.client.auth={settings.client_auth} needs certificates to trust: set "
            "ssl.truststore.type and ssl.truststore.location"
        )
    for step in (partial(_context, ssl.PROTOCOL_TLS_SERVER), _namer):
        try:
            step(settings)
        except TlsConfigError as error:
            yield error


def server_contexts(settings: TlsSettings, *, among_brokers: bool = False) -> TlsContexts:
    """Raises TlsConfigError. `among_brokers`: brokers call each other by this listener."""
    for problem in listener_problems(settings):
        raise problem
    stamps = stamps_of(settings)  # before reading: a file that changes meanwhile is read again
    key_store, trusted = _stores(settings)
    assert key_store is not None, settings.where
    server = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    server.num_tickets = 0
    _load_key(server, key_store, settings)
    if settings.client_auth is not ClientAuth.NONE:
        assert trusted is not None, settings.where
        _trust(server, trusted, settings)
        required = settings.client_auth is ClientAuth.REQUIRED
        server.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    client = trial = None
    if among_brokers:
        client = _client_context(settings, key_store, trusted)
        trial = _client_context(replace(settings, checks_host_name=False), key_store, trusted)
    return TlsContexts(
        settings,
        stamps,
        server,
        client,
        trial,
        _own_certificate(key_store, settings),
        trusted is not None,
        _namer(settings),
    )


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises TlsConfigError."""
    key_store, trusted = _stores(settings)
    return _client_context(settings, key_store, trusted)


def require_mutual_trust(contexts: TlsContexts, other: TlsContexts) -> None:
    """Brokers could call each other, one with these and one with those: `other` is the same at the
    start, and what a broker has that has not changed yet when stores change. Raises TlsConfigError.
    """
    for server, client in ((contexts.server, other.trial), (other.server, contexts.trial)):
        assert client is not None
        try:
            _shake_hands(server, client)
        except ssl.SSLError as error:
            raise contexts.settings.refused(
                "brokers could not connect to each other with these stores, because one would "
                f"refuse the other: {explained(error)}"
            ) from error


def require_replaceable(new: TlsContexts, old: TlsContexts) -> None:
    """Kafka's rules for stores that change while a listener runs. Raises TlsConfigError."""
    moment = datetime.now(UTC)
    if not new.certificate.is_valid_at(moment):
        raise new.settings.refused(
            f"the new certificate is not valid now: it is valid from {new.certificate.not_before} "
            f"to {new.certificate.not_after}"
        )
    if not new.settings.allow_dn_changes and (
        new.certificate.subject.lower() != old.certificate.subject.lower()
    ):
        raise new.settings.refused(
            f"the new certificate is of {new.certificate.subject}, the present one of "
            f"{old.certificate.subject}; they must be the same unless ssl.allow.dn.changes is set"
        )
    if not new.settings.allow_san_changes and not (
        old.certificate.alternative_names <= new.certificate.alternative_names
    ):
        raise new.settings.refused(
            "the new certificate lacks subject alternative names that the present one has; it must "
            "have them all unless ssl.allow.san.changes is set"
        )
    if new.has_trust_store and not old.has_trust_store:
        raise new.settings.refused(
            "a trust store cannot be added to a listener that runs without one"
        )


def _stores(settings: TlsSettings) -> tuple[KeyStore | None, str | None]:
    try:
        return read_key_store(settings.key_store), read_trust_store(settings.trust_store)
    except TlsConfigError as error:
        raise settings.refused(str(error)) from error


def _client_context(
    settings: TlsSettings, key_store: KeyStore | None, trusted: str | None
) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.checks_host_name
    context.verify_mode = ssl.CERT_REQUIRED
    if trusted is None:
        context.load_default_certs()  # as Java's clients trust what comes with Java
    else:
        _trust(context, trusted, settings)
    if key_store is not None:
        _load_key(context, key_store, settings)
    return context


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    versions = _versions(settings)
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    older = [each for each in settings.cipher_suites if each not in TLS_1_3_SUITES]
    if older:
        _set_ciphers(context, older, settings)
    return context


def _versions(settings: TlsSettings) -> list[ssl.TLSVersion]:
    unknown = [name for name in settings.enabled_protocols if name not in _VERSIONS]
    if unknown:
        raise settings.refused(
            f"ssl.enabled.protocols: {', '.join(unknown)} is not spoken here; use "
            f"{', '.join(_VERSIONS)}"
        )
    enabled = set(settings.enabled_protocols or _VERSIONS)
    if settings.cipher_suites:
        newest = [each for each in TLS_1_3_SUITES if each in settings.cipher_suites]
        if newest and len(newest) < len(TLS_1_3_SUITES) and TLS_1_3 in enabled:
            raise settings.refused(
                "ssl.cipher.suites has some suites of TLS 1.3 and not others, which Python cannot "
                f"do: name all of {', '.join(TLS_1_3_SUITES)}, or none"
            )
        if not newest:
            enabled.discard(TLS_1_3)
        if len(newest) == len(settings.cipher_suites):
            enabled.discard(TLS_1_2)
    if not enabled:
        raise settings.refused(
            "ssl.cipher.suites has no suite of the versions in ssl.enabled.protocols"
        )
    return [_VERSIONS[name] for name in enabled]


def _set_ciphers(context: ssl.SSLContext, suites: Sequence[str], settings: TlsSettings) -> None:
    unknown = [each for each in suites if each not in TLS_1_2_SUITES]
    if unknown:
        raise settings.refused(
            f"ssl.cipher.suites: {', '.join(unknown)} is not known; names are those of Java, such "
            "as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        )
    for each in suites:
        try:
            context.set_ciphers(TLS_1_2_SUITES[each])
        except ssl.SSLError as error:
            raise settings.refused(
                f"ssl.cipher.suites: OpenSSL does not offer {each} here"
            ) from error
    context.set_ciphers(":".join(TLS_1_2_SUITES[each] for each in suites))


def _load_key(context: ssl.SSLContext, store: KeyStore, settings: TlsSettings) -> None:
    # Without a password OpenSSL would ask the terminal for one.
    password = store.key_password or ""
    with in_memory(store.certificates) as chain, in_memory(store.key) as key:
        try:
            context.load_cert_chain(chain, key, password=password)
        except (ssl.SSLError, OSError) as error:
            raise settings.refused(_why_not_loaded(store, error)) from error


def _why_not_loaded(store: KeyStore, error: OSError) -> str:
    reason = getattr(error, "reason", None) or str(error)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key of the key store does not belong to its first certificate"
    is_encrypted = "ENCRYPTED" in store.key
    if is_encrypted and store.key_password is None:
        return "the private key is encrypted: set ssl.key.password"
    if is_encrypted:
        return "the private key cannot be read: ssl.key.password is wrong, or the key is damaged"
    return f"the key store cannot be used: {reason.replace('_', ' ').lower()}"


def _trust(context: ssl.SSLContext, certificates: str, settings: TlsSettings) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_TRUSTED_FIRST
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise settings.refused(f"the trust store cannot be used: {error}") from error


def _own_certificate(store: KeyStore, settings: TlsSettings) -> Certificate:
    try:
        return first_certificate(store.certificates)
    except ValueError as error:
        raise settings.refused(
            f"the certificate of the key store cannot be read: {error}"
        ) from None


def _namer(settings: TlsSettings) -> Callable[[bytes], str] | None:
    if settings.principal_mapping_rules is None or settings.client_auth is ClientAuth.NONE:
        return None
    try:
        return rule_namer(settings.principal_mapping_rules, subject_of)
    except InvalidRules as error:
        raise settings.refused(f"ssl.principal.mapping.rules: {error}") from error


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """In memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    calling = client.wrap_bio(to_client, to_server)
    waiting = {serving, calling}
    for _ in range(20):
        for side in (calling, serving):
            if side in waiting:
                try:
                    side.do_handshake()
                    waiting.discard(side)
                except ssl.SSLWantReadError:
                    pass
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")
