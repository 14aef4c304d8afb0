from __future__ import annotations

import pytest

from tidelog.config.broker import AUTHORIZERS, BrokerConfig
from tidelog.config.definition import ConfigError

SET = {"authorizer.class.name": AUTHORIZERS[0]}


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_both_of_kafkas_authorizers_stand_for_the_one_built_in(name: str) -> None:
    assert BrokerConfig({"authorizer.class.name": name}).has_authorizer
    assert not BrokerConfig({}).has_authorizer


def test_another_class_is_refused_with_the_name_to_use() -> None:
    with pytest.raises(
        ConfigError, match=f"com.example.Mine cannot be loaded. Set {AUTHORIZERS[0]}"
    ):
        BrokerConfig({"authorizer.class.name": "com.example.Mine"})


def test_super_users_are_separated_by_semicolons() -> None:
    users = BrokerConfig({**SET, "super.users": "User:admin; User:CN=ops,O=a:b ;"}).super_users
    assert users == {"User:admin", "User:CN=ops,O=a:b"}
    assert BrokerConfig(SET).super_users == frozenset()


def test_a_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"super\.users"):
        BrokerConfig({**SET, "super.users": "User:a;admin"})


def test_super_users_without_an_authorizer_are_refused() -> None:
    """The operator believes that all others are kept out."""
    with pytest.raises(ConfigError, match="every client is a super user"):
        BrokerConfig({"super.users": "User:admin"})


def test_what_holds_without_acls_is_warned_of_where_there_is_no_authorizer() -> None:
    key = "allow.everyone.if.no.acl.found"
    assert [key in warning for warning in BrokerConfig({key: "false"}).warnings] == [True]
    assert BrokerConfig({**SET, key: "true"}).warnings == ()
