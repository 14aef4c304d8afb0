"""What makes the authenticator of a new connection, for each listener with SASL.

Only a broker with such a listener imports this module, which knows all mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.config.oauth import OAUTHBEARER
from tidelog.config.sasl import PLAIN
from tidelog.sasl.mechanism import SaslServer
from tidelog.sasl.oauthbearer import OAuthBearerServer
from tidelog.sasl.plain import PlainServer
from tidelog.sasl.scram import PretendedCredentials, ScramServer
from tidelog.sasl.scram_credential import ScramMechanism
from tidelog.sasl.server_authenticator import SaslServerAuthenticator

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.security.token_validators import TokenValidators


def authenticators(
    broker: Broker, validators: TokenValidators
) -> dict[str, Callable[[], SaslServerAuthenticator]]:
    pretended = PretendedCredentials(broker.metadata.cluster_id.encode())
    return {
        name: partial(_new_authenticator, broker, name, pretended, validators)
        for name in broker.config.sasl_listeners
    }


def _new_authenticator(
    broker: Broker,
    listener_name: str,
    pretended: PretendedCredentials,
    validators: TokenValidators,
) -> SaslServerAuthenticator:
    listener = broker.config.sasl_listeners[listener_name]

    def new_server(mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(listener.plain_users)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(validators[listener_name].validate)
        scram = ScramMechanism.named(mechanism)
        find = partial(broker.dynamic_config.scram_credential_or_none, scram)
        tokens = broker.delegation_tokens
        if tokens is None:
            return ScramServer(scram, find, pretended)
        find_token = partial(tokens.credential_or_none, scram)
        return ScramServer(scram, find, pretended, find_token=find_token)

    return SaslServerAuthenticator(listener, new_server, broker.clock)
